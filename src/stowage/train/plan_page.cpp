#include "stowage/train/plan_page.h"

#include <algorithm>
#include <array>
#include <map>

#include "stowage/base/bytes.h"
#include "stowage/plan/owner_timeline.h"
#include "stowage/train/plan_page_text.h"

namespace stow {
namespace {

constexpr size_t kMaxColumns = 400, kMaxOwners = 24, kMaxListed = 256, kMaxText = 200;

// Returns at most kMaxText bytes of a text, cut between characters.
std::string cut(const std::string& text) {
  if (text.size() <= kMaxText) return text;
  size_t end = kMaxText;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

// Returns a list of at most kMaxListed entries, each made by `make`; `left_out` counts the others.
template <typename Range, typename Make>
Json listed(const Range& range, Json& left_out, Make&& make) {
  Json list = Json::array();
  size_t n = 0;
  for (const auto& one : range)
    if (n++ < kMaxListed) list.push_back(make(one));
  left_out = Json(n > kMaxListed ? n - kMaxListed : 0);
  return list;
}

// Returns a value with its texts and lists shortened.
Json bounded(const Json& value) {
  if (const std::string* text = value.as_string()) return cut(*text);
  if (const Json::Array* elements = value.as_array()) {
    Json list = Json::array();
    for (size_t i = 0; i < std::min(elements->size(), kMaxListed); ++i)
      list.push_back(bounded((*elements)[i]));
    return list;
  }
  if (const Json::Object* members = value.as_object()) {
    Json object = Json::object();
    for (const JsonMember& member : *members) object.set(member.key, bounded(member.value));
    return object;
  }
  return value;
}

// Returns the series as value, length, value, length, and so on.
Json runs_of(const std::vector<int64_t>& series) {
  Json runs = Json::array();
  for (size_t begin = 0, end; begin < series.size(); begin = end) {
    for (end = begin + 1; end < series.size() && series[end] == series[begin];) ++end;
    runs.push_back(series[begin]);
    runs.push_back(end - begin);
  }
  return runs;
}

// A line of a chart. `use` is one of kUses, in whose order lines are stacked.
struct Line {
  size_t use = 0;
  std::string what, source;
  int64_t peak_bytes = 0;
  std::vector<int64_t> bytes;
};

constexpr std::array<const char*, 10> kUses = {"parameters",
                                               "optimizer state",
                                               "frozen weights",
                                               "batch and other inputs",
                                               "results",
                                               "kept for backward",
                                               "gradients and backward work",
                                               "forward and update work",
                                               "scratch",
                                               "beside the program"};
enum Use : size_t {
  kParameters,
  kOptimizer,
  kFrozen,
  kInputs,
  kResults,
  kKept,
  kBackwardWork,
  kForwardWork,
  kScratchUse,
  kBeside
};

class Charts {
 public:
  explicit Charts(const PlanPage& page) : page_(page) {}

  Json programs() const {
    Json list = Json::array();
    const std::string step = step_phase(0);
    list.push_back(program(step, *page_.plan.programs.step));
    const std::string& peak = page_.plan.peak_phase;
    if (peak != step) list.push_back(program(peak, page_.plan.program(peak)));
    return list;
  }

 private:
  Json program(const std::string& name, const Executable& program) const {
    const auto phase = std::find_if(page_.plan.phases.begin(), page_.plan.phases.end(),
                                    [&](const JobPlan::Phase& p) { return p.name == name; });
    Json kinds = Json::array();
    for (size_t k = 0; k < kNumMemoryKinds; ++k)
      if (phase->peak_bytes[k] > 0)
        kinds.push_back(chart(program, name, static_cast<MemoryKind>(k), phase->peak_bytes[k]));
    const MemoryAnalysis& a = program.memory_analysis();
    return Json::object({{"name", name},
                         {"peak_at", cut(a.peak_at)},
                         {"peak_instant", a.peak_instant},
                         {"n_instants", a.n_instants},
                         {"kinds", kinds}});
  }

  Json chart(const Executable& program, const std::string& name, MemoryKind kind,
             int64_t phase_bytes) const {
    const OwnerTimeline timeline = owner_timeline(program.schedule(), kind, kMaxColumns);
    const size_t columns = timeline.instants.size();
    const int64_t total = program.memory_analysis().kinds[static_cast<size_t>(kind)].total_bytes;
    std::vector<Line> lines = lines_of(timeline, name);
    if (const int64_t beside = phase_bytes - total; beside > 0)
      lines.push_back({kBeside, "state that this program does not read", "", beside,
                       std::vector<int64_t>(columns, beside)});
    const size_t n_owners = lines.size();
    merge_small(lines);
    Json owners = Json::array(), instants = Json::array(), places = Json::array(),
         running = Json::array();
    for (const Line& line : lines)
      owners.push_back(Json::object({{"use", kUses[line.use]},
                                     {"what", cut(line.what)},
                                     {"source", cut(line.source)},
                                     {"peak_bytes", line.peak_bytes},
                                     {"bytes", runs_of(line.bytes)}}));
    std::map<std::string, size_t> place_of;
    for (size_t c = 0; c < columns; ++c) {
      instants.push_back(timeline.instants[c]);
      const auto [at, is_new] = place_of.try_emplace(cut(timeline.running[c]), place_of.size());
      if (is_new) places.push_back(at->first);
      running.push_back(at->second);
    }
    return Json::object({{"kind", memory_kind_name(kind)},
                         {"total_bytes", phase_bytes},
                         {"live_peak_bytes", timeline.peak_live_bytes + phase_bytes - total},
                         {"gap_bytes", total - timeline.peak_live_bytes},
                         {"n_instants", timeline.n_instants},
                         {"n_owners", n_owners},
                         {"peak_column", timeline.peak_column},
                         {"instants", instants},
                         {"places", places},
                         {"running", running},
                         {"owners", owners}});
  }

  std::vector<Line> lines_of(const OwnerTimeline& timeline, const std::string& program) const {
    std::array<Line, kInputs + 1> inputs;  // arguments, by what they are to the training
    std::vector<Line> lines;
    for (const OwnerLine& owner : timeline.lines) {
      if (owner.use != OwnerUse::kArgument) {
        lines.push_back({use_of(owner.use), owner.owner.what, owner.owner.source,
                         owner.owner.bytes, owner.bytes});
        continue;
      }
      Line& line = inputs[input_use(program, static_cast<size_t>(owner.input))];
      line.bytes.resize(owner.bytes.size());
      for (size_t c = 0; c < owner.bytes.size(); ++c) line.bytes[c] += owner.bytes[c];
      line.peak_bytes += owner.owner.bytes;
    }
    for (size_t use = 0; use < inputs.size(); ++use) {
      if (inputs[use].bytes.empty()) continue;
      inputs[use].use = use;
      inputs[use].what = "argument";
      inputs[use].source = kUses[use];
      lines.push_back(std::move(inputs[use]));
    }
    return lines;
  }

  // Returns the use of an argument; arguments have the order of JobPrograms.
  size_t input_use(const std::string& program, size_t input) const {
    const ProgramKind kind = program_kind(program);
    if (kind == ProgramKind::kInit)
      return page_.job.model().reads_parameters() ? kParameters : kInputs;
    const size_t n_state =
        kind == ProgramKind::kStep ? page_.job.state().size() : page_.job.n_model_leaves();
    if (input < page_.job.n_model_leaves()) return kParameters;
    if (input < n_state) return kOptimizer;
    return input < n_state + page_.job.frozen().size() ? kFrozen : kInputs;
  }

  static size_t use_of(OwnerUse use) {
    switch (use) {
      case OwnerUse::kArgument:
        return kInputs;
      case OwnerUse::kResult:
        return kResults;
      case OwnerUse::kResidual:
        return kKept;
      case OwnerUse::kForward:
        return kForwardWork;
      case OwnerUse::kBackward:
        return kBackwardWork;
      case OwnerUse::kScratch:
        return kScratchUse;
    }
    return kForwardWork;
  }

  // Keeps the lines that are largest at the peak, then those that are largest anywhere; merges the
  // others of each use into one line.
  static void merge_small(std::vector<Line>& lines) {
    const auto most = [](const Line& line) {
      return *std::max_element(line.bytes.begin(), line.bytes.end());
    };
    std::stable_sort(lines.begin(), lines.end(), [&](const Line& a, const Line& b) {
      return std::pair(a.peak_bytes, most(a)) > std::pair(b.peak_bytes, most(b));
    });
    // Half of the places are for lines that are large at another time.
    if (lines.size() > kMaxOwners)
      std::stable_sort(lines.begin() + kMaxOwners / 2, lines.end(),
                       [&](const Line& a, const Line& b) { return most(a) > most(b); });
    std::vector<Line> kept;
    std::map<size_t, std::pair<Line, size_t>> merged;
    for (size_t i = kMaxOwners; i < lines.size(); ++i) {
      if (lines[i].use <= kInputs) {  // at most one of each
        kept.push_back(std::move(lines[i]));
        continue;
      }
      auto& [line, count] = merged[lines[i].use];
      line.use = lines[i].use;
      line.bytes.resize(lines[i].bytes.size());
      for (size_t c = 0; c < line.bytes.size(); ++c) line.bytes[c] += lines[i].bytes[c];
      line.peak_bytes += lines[i].peak_bytes;
      ++count;
    }
    if (lines.size() > kMaxOwners) lines.resize(kMaxOwners);
    lines.insert(lines.end(), kept.begin(), kept.end());
    for (auto& [use, rest] : merged) {
      rest.first.what = fmt::format("{} smaller owners together", rest.second);
      lines.push_back(std::move(rest.first));
    }
    std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
      return std::pair(a.use, -a.peak_bytes) < std::pair(b.use, -b.peak_bytes);
    });
  }

  const PlanPage& page_;
};

Json budgets_json(const Budgets& budgets) {
  Json object = Json::object();
  for (size_t kind = 0; kind < budgets.size(); ++kind)
    object.set(memory_kind_name(static_cast<MemoryKind>(kind)),
               budgets[kind] ? Json(*budgets[kind]) : Json());
  return object;
}

// Returns text for a script, in which no tag begins or ends and no line ends.
std::string in_script(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '<' || c == '>' || c == '&')
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else if (text.compare(i, 3, "\u2028") == 0 || text.compare(i, 3, "\u2029") == 0)
      out += text[i + 2] == '\xa8' ? "\\u2028" : "\\u2029", i += 2;
    else
      out += c;
  }
  return out;
}

}  // namespace

Json plan_page_json(const PlanPage& page) {
  const Job& job = page.job;
  const TrainConfig& config = job.config();
  const bool is_refused = !page.near.empty();
  Json figures = Json::object(
      {{"model", cut(job.describe())},
       {"mesh", describe_mesh(job)},
       {"refused", is_refused},
       {"placement", to_string(page.plan.placement)},
       {"peak_phase", page.plan.peak_phase},
       {"host_counts_as_device", !config.is_virtual()},
       {"budget_bytes", budgets_json(page.budgets)},
       {"needed_bytes", bytes_json(is_refused ? page.near[0].needed_bytes
                                              : budgeted_bytes(config, page.plan.peak_bytes))}});
  Json left_out;
  figures.set(
      "phases", listed(page.plan.phases, left_out, [](const JobPlan::Phase& phase) {
        return Json::object({{"name", phase.name}, {"peak_bytes", bytes_json(phase.peak_bytes)}});
      }));
  figures.set("candidates", listed(page.choice.candidates, left_out, [&](const Candidate& c) {
                return Json::object({{"placement", to_string(c.placement)},
                                     {"by_kind", bytes_json(c.peak_bytes)},
                                     {"bytes", device_bytes(config, c.peak_bytes)},
                                     {"verdict", verdict_of(job, page.choice, c)},
                                     {"chosen", page.choice.plan && c.placement ==
                                                    page.choice.plan->placement}});
              }));
  figures.set("candidates_left_out", left_out);
  figures.set("remedies", listed(page.remedies, left_out, [](const Remedy& r) {
                return Json::object({{"change", cut(r.change)},
                                     {"peak_bytes", r.peak_bytes},
                                     {"verdict", verdict_of(r)},
                                     {"changes_numbers", r.changes_numbers}});
              }));
  figures.set("remedies_left_out", left_out);
  std::vector<const Shortfall*> enough;
  for (const Shortfall& s : page.near)
    if (s.is_enough) enough.push_back(&s);
  figures.set("enough", listed(enough, left_out, [](const Shortfall* s) {
                return Json::object(
                    {{"settings", settings_for(*s)}, {"placement", to_string(s->placement)}});
              }));
  if (!page.sweep.empty()) {
    const std::optional<size_t> best = best_row(page.sweep);
    size_t at = 0;
    figures.set("sweep", listed(page.sweep, left_out, [&](const SweepRow& row) {
                  Json line = bounded(to_json(row, best == at++));
                  line.set("name", to_string(row.point.mesh));
                  return line;
                }));
    figures.set("sweep_left_out", left_out);
  }
  Json settings = Json::array();
  for (const auto& [key, value] : config_text(config))
    settings.push_back(Json(Json::Array{Json(key), Json(cut(value))}));
  figures.set("settings", settings);
  figures.set("report", bounded(page.report));
  figures.set("programs", Charts(page).programs());
  return figures;
}

std::string plan_page_html(const Json& figures) {
  return fmt::format("{}{}{}", kPlanPageHead, in_script(figures.dump()), kPlanPageTail);
}

Result<void> write_plan_page(AtomicFile& file, const PlanPage& page) {
  if (Result<void> written = file.write(as_bytes(plan_page_html(plan_page_json(page)))); !written)
    return written;
  return file.commit();
}

}  // namespace stow
