#include "stowage/train/sweep.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stowage/base/bytes.h"
#include "stowage/base/nearest.h"
#include "stowage/base/parallel_in_order.h"
#include "stowage/train/trainer.h"
#include "stowage/tune/run_trace.h"

namespace stow {
namespace {

constexpr int64_t kMostDevices = 1 << 20;

int64_t& extent_of(SweepMesh& mesh, std::string_view axis) {
  return axis == "replica" ? mesh.replica : axis == "data" ? mesh.data : mesh.model;
}

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> small, large;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    small.push_back(d);
    if (d != n / d) large.push_back(n / d);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

}  // namespace

std::string to_string(const SweepMesh& mesh) {
  std::vector<std::string> axes;
  if (mesh.replica > 1) axes.push_back(fmt::format("replica={}", mesh.replica));
  if (mesh.data > 1) axes.push_back(fmt::format("data={}", mesh.data));
  if (mesh.model > 1) axes.push_back(fmt::format("model={}", mesh.model));
  return axes.empty() ? "one device" : fmt::format("{}", fmt::join(axes, " "));
}

Result<SweepMesh> parse_sweep_mesh(std::string_view text) {
  static const std::vector<std::string> axes = {"replica", "data", "model"};
  SweepMesh mesh;
  std::vector<std::string> given;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part(text.substr(at, end - at));
    at = end + 1;
    const size_t equals = part.find('=');
    if (equals == std::string::npos)
      return fail("expected axes such as data=256,model=4, got '{}'", text);
    const std::string name = part.substr(0, equals);
    if (std::find(axes.begin(), axes.end(), name) == axes.end())
      return fail("no axis '{}' in '{}'; did you mean '{}'?", name, text, nearest_name(name, axes));
    if (std::find(given.begin(), given.end(), name) != given.end())
      return fail("expected each axis once, got '{}'", text);
    given.push_back(name);
    int64_t& extent = extent_of(mesh, name);
    const char* const last = part.data() + part.size();
    const auto [stop, error] = std::from_chars(part.data() + equals + 1, last, extent);
    if (error != std::errc() || stop != last || extent < 1 || extent > kMostDevices)
      return fail("expected a number of devices from 1 to {} for {}, got '{}'", kMostDevices, name,
                  part.substr(equals + 1));
  }
  if (mesh.replica > kMostDevices / mesh.data || mesh.batch_parts() > kMostDevices / mesh.model)
    return fail("'{}' is more than {} devices", text, kMostDevices);
  return mesh;
}

std::vector<SweepMesh> meshes_of(int64_t n_devices, std::span<const int64_t> blocks) {
  std::vector<SweepMesh> meshes;
  for (const int64_t model : divisors(n_devices)) {
    const int64_t data = n_devices / model;
    meshes.push_back({1, data, model});
    for (const int64_t block : blocks)
      if (block < n_devices && n_devices % block == 0 && block % model == 0)
        meshes.push_back({n_devices / block, block / model, model});
  }
  return meshes;
}

std::optional<double> SweepRow::tokens_per_s() const {
  if (!plan.fits || !plan.step_s || *plan.step_s <= 0) return std::nullopt;
  return static_cast<double>(plan.tokens) / *plan.step_s;
}

namespace {

// The search for the largest batch, from the known needs of some numbers of sequences per part.
class BatchSearch {
 public:
  BatchSearch(int64_t first, int64_t budget) : first_(first), budget_(budget) {}

  bool is_done() const { return fitting_ + 1 == over_ || fitting_ == kMost; }
  int64_t fitting() const { return fitting_; }

  // Returns the number to plan next: where the line through the known needs meets the budget.
  int64_t next() const {
    const bool is_open = over_ > kMost;
    if (is_open && fitting_ == 0) return first_;
    // Without a line: twice as many, or 1 if the first number is too large, or the middle of the
    // borders.
    const int64_t halfway = is_open         ? std::min(2 * fitting_, kMost)
                            : fitting_ == 0 ? 1
                                            : fitting_ + (over_ - fitting_) / 2;
    // The two known numbers nearest to the border.
    auto above = needs_.upper_bound(fitting_);
    if (above == needs_.end() && !needs_.empty()) --above;
    if (needs_.size() < 2 || above == needs_.begin()) return halfway;
    const auto below = std::prev(above);
    const double slope = static_cast<double>(above->second - below->second) /
                         static_cast<double>(above->first - below->first);
    // On a curve the line could advance by one at a time, so every fourth number ignores it.
    if (slope <= 0 || needs_.size() % 4 == 0) return halfway;
    const double at = static_cast<double>(below->first) +
                      static_cast<double>(budget_ - below->second) / slope;
    const int64_t most = std::min({over_ - 1, kMost, 64 * (fitting_ + 1)});
    return static_cast<int64_t>(
        std::clamp(at, static_cast<double>(fitting_ + 1), static_cast<double>(most)));
  }

  // `need`: none if that number cannot be planned.
  void note(int64_t n, const std::optional<LeanestPlan>& need) {
    if (need) needs_[n] = need->device_bytes;
    if (need && need->fits)
      fitting_ = std::max(fitting_, n);
    else
      over_ = std::min(over_, n);
  }

 private:
  static constexpr int64_t kMost = 1 << 20;
  int64_t first_, budget_;
  int64_t fitting_ = 0, over_ = kMost + 1;
  std::map<int64_t, int64_t> needs_;  // bytes of the device by sequences a part
};

}  // namespace

std::optional<int64_t> largest_batch(const SweepPlanner& planner, const SweepPoint& point,
                                     int most_plans) {
  const std::optional<int64_t> budget = planner.budget_bytes();
  if (!budget) return std::nullopt;
  const int64_t parts = point.mesh.batch_parts();
  BatchSearch search(std::max<int64_t>(point.batch / parts, 1), *budget);
  for (int plans = 0; plans < most_plans && !search.is_done(); ++plans) {
    const int64_t n = search.next();
    SweepPoint changed = point;
    changed.batch = n * parts;
    changed.search_batch = point.batch;
    const Result<LeanestPlan> need = planner.plan_leanest(changed);
    search.note(n, need ? std::optional(*need) : std::nullopt);
  }
  return search.fitting() * parts;
}

std::vector<SweepRow> sweep(const SweepPlanner& planner, std::span<const SweepPoint> points,
                            int threads) {
  std::vector<SweepRow> rows;
  const auto begin = [&](size_t i) {
    return std::optional<std::function<SweepRow()>>([&planner, &point = points[i]] {
      SweepRow row{.point = point};
      Result<SweepPlan> plan = planner.plan(point);
      if (!plan) {
        row.impossible = plan.error();
        return row;
      }
      row.plan = std::move(*plan);
      row.largest_batch = largest_batch(planner, point);
      return row;
    });
  };
  parallel_in_order(points.size(), threads, begin, [&](size_t, SweepRow row) {
    rows.push_back(std::move(row));
    return true;
  });
  return rows;
}

std::optional<size_t> best_row(std::span<const SweepRow> rows) {
  std::optional<size_t> best;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::optional<double> rate = rows[i].tokens_per_s();
    if (rows[i].is_planned() && rate && (!best || *rate > *rows[*best].tokens_per_s())) best = i;
  }
  return best;
}

std::string sweep_table(std::span<const SweepRow> rows) {
  using Cells = std::vector<std::string>;
  std::vector<Cells> lines = {{"", "mesh", "batch", "placement", "peak", "step", "exposed",
                               "tokens/s", "largest batch", "bound by"}};
  const std::optional<size_t> best = best_row(rows);
  const auto seconds = [](const std::optional<double>& s) { return s ? format_seconds(*s) : "-"; };
  for (size_t i = 0; i < rows.size(); ++i) {
    const SweepRow& row = rows[i];
    if (!row.is_planned()) continue;
    const std::optional<double> rate = row.tokens_per_s();
    lines.push_back({best == i ? "*" : "", to_string(row.point.mesh),
                     fmt::format("{}", row.point.batch), row.plan.placement,
                     format_bytes(row.plan.peak_bytes[0]), seconds(row.plan.step_s),
                     seconds(row.plan.exposed_s), rate ? fmt::format("{:.0f}", *rate) : "-",
                     row.largest_batch ? fmt::format("{}", *row.largest_batch) : "no limit",
                     row.plan.bound_by.empty() ? "-" : row.plan.bound_by});
  }
  std::vector<size_t> widths(lines[0].size());
  for (const Cells& cells : lines)
    for (size_t c = 0; c < cells.size(); ++c) widths[c] = std::max(widths[c], cells[c].size());
  std::string text;
  if (lines.size() > 1)
    for (const Cells& cells : lines) {
      std::string line;
      for (size_t c = 0; c < cells.size(); ++c) {
        const bool is_number = c == 2 || (c >= 4 && c <= 8);
        line += is_number ? fmt::format("{:>{}}  ", cells[c], widths[c])
                          : fmt::format("{:<{}}  ", cells[c], widths[c]);
      }
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
  for (const SweepRow& row : rows)
    for (const std::string& value : row.plan.whole)
      text += fmt::format("{}: {}\n", to_string(row.point.mesh), value);
  for (const SweepRow& row : rows)
    if (!row.is_planned())
      text += fmt::format("not possible: {}: {}\n", to_string(row.point.mesh), row.impossible);
  return text;
}

Json to_json(const SweepRow& row, bool is_best) {
  const auto known = [](const auto& value) { return value ? Json(*value) : Json(); };
  const bool planned = row.is_planned();
  const SweepMesh& mesh = row.point.mesh;
  return Json::object(
      {{"mesh",
        Json::object({{"replica", mesh.replica}, {"data", mesh.data}, {"model", mesh.model}})},
       {"devices", mesh.size()},
       {"batch", row.point.batch},
       {"policy", row.point.policy},
       {"placement", planned ? Json(row.plan.placement) : Json()},
       {"peak_bytes", planned ? Json(row.plan.peak_bytes[0]) : Json()},
       {"by_kind", planned ? bytes_json(row.plan.peak_bytes) : Json()},
       {"fits", planned && row.plan.fits},
       {"step_s", known(row.plan.step_s)},
       {"exposed_s", known(row.plan.exposed_s)},
       {"tokens_per_s", known(row.tokens_per_s())},
       {"largest_batch", known(row.largest_batch)},
       {"bound_by", row.plan.bound_by.empty() ? Json() : Json(row.plan.bound_by)},
       {"whole", row.plan.whole_values},
       {"best", is_best},
       {"impossible", planned ? Json() : Json(row.impossible)}});
}

}  // namespace stow
