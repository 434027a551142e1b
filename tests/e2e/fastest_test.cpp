// What `auto` chooses for a described device: within a tenth of the best that a person could set by
// hand, no slower for a larger budget, and nothing is passed over that fits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "stowage/plan/memory_plan.h"
#include "stowage/runtime/null/built_in_devices.h"
#include "stowage/runtime/null/simulate.h"
#include "stowage/runtime/target.h"
#include "stowage/session/overlap.h"
#include "stowage/train/decoder_model.h"
#include "stowage/train/fastest.h"
#include "stowage/train/fit.h"
#include "stowage/train/forecast.h"
#include "stowage/tune/devices.h"

namespace stow {
namespace {

// `auto` against the best by hand; what a larger budget may cost.
constexpr double kNearBest = 1.1, kNoSlower = 1.02;
// What of a step its estimate leaves out: a base that is planned for a budget may compute more.
constexpr double kHardlyLess = 1.02;

DeviceDescription device(const char* name) { return *load_device_description(name); }
// A job whose plans are made for a device.
Job job_for(const TrainConfig& c, const DeviceDescription& d) {
  return Job(c, 1, decoder_model, std::make_shared<const DeviceDescription>(d));
}

TrainConfig small_config() {
  TrainConfig c;
  c.model = {
      .dim = 64, .layers = 3, .heads = 4, .kv_heads = 2, .ffn = 192, .vocab = 256, .tied = false};
  c.data.batch = 4;
  c.data.seq = 128;
  c.runtime.platform = "virtual";
  c.train.sample = 0;
  return c;
}

// Another model, batch and rule of the update, in every form of the blocks and the loss.
TrainConfig random_config(std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<int64_t> values) {
    return values.begin()[random() % values.size()];
  };
  TrainConfig c = small_config();
  c.model.dim = one_of({32, 64, 128});
  c.model.layers = one_of({2, 3});
  c.model.ffn = one_of({64, 192, 512});
  c.model.tied = one_of({0, 1}) == 1;
  c.data.batch = one_of({2, 4});
  c.data.seq = one_of({64, 128, 320});
  c.data.accumulate = one_of({1, 1, 2});
  c.optimizer.clip = one_of({0, 1}) == 1 ? 1.0 : 0.0;
  c.train.ema = one_of({0, 1}) == 1 ? 0.5 : 0.0;
  return c;
}

std::vector<Placement> placements_of(const Job& job) {
  return open_placements(job.config(), job.model().sizes());
}
Placement all_on_device(Placement p) {
  p.optimizer = p.parameters = p.gradients = p.frozen = MemoryKind::kDevice;
  return p;
}
double step_s(const JobPlan& plan, const DeviceDescription& device) {
  return simulate(plan.programs.step->schedule(), device).step_s;
}
double bound_s(const JobPlan& plan, const DeviceDescription& device) {
  return simulate(plan.programs.step->schedule(), device).bound_s;
}
bool fits(const Job& job, const JobPlan& plan, const Budgets& budgets) {
  return !first_over(job.config(), plan.peak_bytes, budgets);
}
// From near the least that any placement takes up to near all that is needed.
std::vector<int64_t> budgets_between(const Job& job, int n) {
  const Placement leanest = {.policy = StepPolicy::kOffloadNamed,
                             .optimizer = MemoryKind::kPinnedHost,
                             .parameters = MemoryKind::kPinnedHost,
                             .gradients = MemoryKind::kPinnedHost};
  const auto least = static_cast<double>(job.plan(leanest, {}, false).peak_bytes[0]);
  const auto top = static_cast<double>(job.plan({}).peak_bytes[0]);
  std::vector<int64_t> budgets;
  for (int i = 0; i < n; ++i)
    budgets.push_back(static_cast<int64_t>(least * std::pow(top / least, (i + 0.5) / n)));
  return budgets;
}

// The shortest step of these plans with moves ahead. No order of the same work is faster than its
// busiest stream: those whose busiest stream is the least busy come first, and many others need not
// be planned again.
double best_step_s(const Job& job, std::vector<JobPlan> by_hand, const Budgets& budgets,
                   const DeviceDescription& device) {
  std::stable_sort(by_hand.begin(), by_hand.end(), [&](const JobPlan& a, const JobPlan& b) {
    return bound_s(a, device) < bound_s(b, device);
  });
  double best = 0;
  for (JobPlan& plan : by_hand) {
    if (best > 0 && bound_s(plan, device) >= best) break;
    const double s = step_s(with_moves_ahead(job, std::move(plan), budgets), device);
    if (best == 0 || s < best) best = s;
  }
  return best;
}

TEST(Fastest, IsNearTheBestByHandAndNoSlowerForALargerBudget) {
  TrainConfig c = small_config();
  c.model.layers = 2;
  c.memory.feed_forward = c.memory.loss = "whole";
  c.memory.device = int64_t{1} << 30;  // as where somebody gave a budget: what hides may stay
  std::array<double, 2> before{};
  const std::array<DeviceDescription, 2> devices = {device("h200"), device("rtx4080-laptop")};
  const std::array<Job, 2> jobs = {job_for(c, devices[0]), job_for(c, devices[1])};
  const Job& job = jobs[0];
  size_t n_by_hand = 0, n_budgets = 0;
  for (const int64_t bytes : budgets_between(job, 2)) {
    const Budgets budgets = budgets_of(c, bytes);
    // Half of them for each budget: all take over a minute.
    std::vector<JobPlan> by_hand;
    const std::vector<Placement> placements = placements_of(job);
    for (size_t i = n_budgets++; i < placements.size(); i += 2)
      if (JobPlan plan = job.plan_to_fit(placements[i], budgets); fits(job, plan, budgets))
        by_hand.push_back(std::move(plan));
    n_by_hand += by_hand.size();
    std::array<double, 2> best{};
    const size_t n_devices = std::min(n_budgets, devices.size());
    for (size_t d = 0; d < n_devices; ++d)
      best[d] = best_step_s(jobs[d], by_hand, budgets, devices[d]);
    // The second device, of other ratios, for the larger budget alone.
    for (size_t d = 0; d < n_devices; ++d) {
      SCOPED_TRACE(fmt::format("{} bytes of {}", bytes, devices[d].name));
      const Choice choice = choose_plan(jobs[d], budgets);
      ASSERT_TRUE(choice.plan.has_value());
      EXPECT_TRUE(choice.is_fastest);
      EXPECT_TRUE(fits(job, *choice.plan, budgets));
      const double s = step_s(*choice.plan, devices[d]);
      EXPECT_LE(s, kNearBest * best[d]) << to_string(choice.plan->placement);
      if (before[d] > 0) {
        EXPECT_LE(s, kNoSlower * before[d]) << to_string(choice.plan->placement);
      }
      before[d] = s;
      // The chosen one is the last candidate, and the only one without a reason against it.
      EXPECT_EQ(choice.candidates.back().placement, choice.plan->placement);
      for (size_t i = 0; i < choice.candidates.size(); ++i)
        EXPECT_EQ(choice.candidates[i].verdict.empty(), i + 1 == choice.candidates.size());
    }
  }
  EXPECT_GE(n_by_hand, 5u);
}

// Of random jobs: what is passed over for its memory does not fit, and no step is shorter than it
// was taken to be at the least.
TEST(Fastest, EstimatesOfWhatIsNotPlannedHold) {
  std::mt19937 random(7);
  const std::array<DeviceDescription, 3> devices = {device("h200"), device("rtx4080-laptop"),
                                                    device("cpu")};
  int n_passed_over = 0, n_fit = 0;
  for (int n = 0; n < 3; ++n) {
    const TrainConfig c = random_config(random);
    const Job job(c, 1, decoder_model);
    const std::vector<int64_t> among = budgets_between(job, 5);
    const Budgets budgets = budgets_of(c, among[random() % among.size()]);
    const std::vector<Placement> placements = placements_of(job);
    for (size_t i = random() % 8; i < placements.size(); i += 8) {
      const Placement& p = placements[i];
      const Placement base = all_on_device(p);
      if (p == base) continue;
      SCOPED_TRACE(fmt::format("{} in {} bytes, job {}", to_string(p), *budgets[0], n));
      const bool has_room = !first_over(c, state_bytes(job, base), budgets);
      const JobPlan of_base = has_room ? job.plan_to_fit(base, budgets) : job.plan(base, {}, false);
      JobPlan plan = job.plan_to_fit(p, budgets);
      if (least_device_bytes(job, of_base, p) > *budgets[0] ||
          first_over(c, state_bytes(job, p), budgets)) {
        ++n_passed_over;
        EXPECT_FALSE(fits(job, plan, budgets));
      }
      if (!fits(job, plan, budgets)) continue;
      ++n_fit;
      // With moves ahead a step takes no less than its busiest stream: where that is no less than
      // the estimate, the plan need not be made.
      const bool is_clear =
          std::all_of(devices.begin(), devices.end(), [&](const DeviceDescription& d) {
            return least_step_s(job, of_base, p, d) <= bound_s(plan, d);
          });
      if (!is_clear) plan = with_moves_ahead(job, std::move(plan), budgets);
      for (const DeviceDescription& d : devices)
        EXPECT_LE(least_step_s(job, of_base, p, d), kHardlyLess * step_s(plan, d));
    }
  }
  EXPECT_GE(n_passed_over, 3);
  EXPECT_GE(n_fit, 3);
}

// Near the least budget the estimates pass over everything but what fits; below it everything is
// planned, and the refusal names what is enough.
TEST(Fastest, FitsInWhatARefusalNames) {
  TrainConfig c = small_config();
  c.model.layers = 2;
  c.memory.feed_forward = c.memory.loss = "whole";
  c.memory.optimizer = "pinned_host";  // half of the placements: each is planned
  c.memory.gradients = "device";
  const Job job = job_for(c, device("h200"));
  const Choice refused = choose_plan(job, budgets_of(c, 1));
  ASSERT_FALSE(refused.plan.has_value());
  EXPECT_GE(refused.candidates.size(), 15u);
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const Candidate& candidate : refused.candidates)
    least = std::min(least, candidate.peak_bytes[0]);
  EXPECT_TRUE(choose_plan(job, budgets_of(c, least + least / 50)).plan.has_value());
}

TEST(Fastest, APolicyThatWasAskedForIsKept) {
  TrainConfig c = small_config();
  c.memory.policy = "recompute";
  const Job job = job_for(c, device("h200"));
  const Choice choice = choose_plan(job, {});
  ASSERT_TRUE(choice.plan.has_value());
  EXPECT_TRUE(choice.is_fastest);
  EXPECT_EQ(choice.plan->placement.policy, StepPolicy::kRecompute);
}

// What a policy leaves open is chosen by time too. Here the state that may leave the device need
// not.
TEST(Fastest, PlacesBesideAPolicyThatWasAskedForAreTheFastest) {
  TrainConfig c = small_config();
  c.model.layers = 2;
  c.memory.feed_forward = c.memory.loss = "whole";
  c.memory.policy = "offload_named";
  c.memory.optimizer = "pinned_host";
  c.memory.device = int64_t{1} << 30;  // as where somebody gave a budget: what hides may stay
  const DeviceDescription laptop = device("rtx4080-laptop");
  const Job job = job_for(c, laptop);
  const std::vector<Placement> open = placements_of(job);
  int64_t least = std::numeric_limits<int64_t>::max(), most = 0;
  for (const Placement& p : open) {
    const int64_t needs = job.plan_to_fit(p, {}).peak_bytes[0];
    least = std::min(least, needs);
    most = std::max(most, needs);
  }
  for (const int64_t bytes : {least + least / 20, 2 * most}) {
    const Budgets budgets = budgets_of(c, bytes);
    std::vector<JobPlan> by_hand;
    for (const Placement& p : open)
      if (JobPlan plan = job.plan_to_fit(p, budgets); fits(job, plan, budgets))
        by_hand.push_back(std::move(plan));
    const double best = best_step_s(job, by_hand, budgets, laptop);
    const Choice choice = choose_plan(job, budgets);
    ASSERT_TRUE(choice.plan.has_value()) << bytes;
    EXPECT_TRUE(choice.is_fastest);
    EXPECT_LE(step_s(*choice.plan, laptop), kNearBest * best)
        << bytes << " " << to_string(choice.plan->placement);
  }
}

// Without a budget nothing is faster than what computes and moves least, so nothing else is
// planned.
TEST(Fastest, TheLeastWorkEndsTheSearch) {
  TrainConfig c = small_config();
  c.memory.optimizer = "pinned_host";
  c.memory.loss = "whole";
  for (const char* policy : {"auto", "recompute"}) {
    c.memory.policy = policy;
    const Choice choice = choose_plan(Job(c, 1, decoder_model), {});
    ASSERT_TRUE(choice.plan.has_value()) << policy;
    EXPECT_EQ(choice.candidates.size(), 1u) << policy;
    EXPECT_EQ(choice.plan->placement,
              (Placement{.policy = parse_policy(policy).value_or(StepPolicy::kSaveAll),
                         .optimizer = MemoryKind::kPinnedHost}))
        << to_string(choice.plan->placement);
  }
}

TEST(Fastest, OverAMeshADeviceCountsThatWasNamed) {
  TrainConfig c = small_config();
  const std::optional<DeviceDescription> h200 = device("h200");
  EXPECT_NE(device_to_plan_for(c, h200, false), nullptr);
  c.mesh.data = 2;
  EXPECT_EQ(device_to_plan_for(c, h200, false), nullptr);
  EXPECT_EQ(device_to_plan_for(c, h200, true)->name, h200->name);
  const Job job(c, 1, decoder_model);
  EXPECT_EQ(job.target()->description(), common_cpu());
  // The times of its collectives are those of a network that joins both devices, or the forecast
  // says that they are not.
  const JobPlan plan = job.plan({});
  EXPECT_EQ(forecast_step(*plan.programs.step, h200).network_fault, "");
  EXPECT_NE(forecast_step(*plan.programs.step, device("rtx4080-laptop"))
                .network_fault.find("has no [[network]]"),
            std::string::npos);
}

// A few moves ahead take no more than the capacity, and no longer than none.
TEST(Fastest, AFewMovesAheadStayWithinTheCapacity) {
  const TrainConfig c = small_config();
  const Job job(c, 1, decoder_model);
  const Placement p = {.policy = StepPolicy::kOffloadNamed, .optimizer = MemoryKind::kPinnedHost};
  const JobPlan plan = job.plan(p, {}, false);
  const Schedule& schedule = plan.programs.step->schedule();
  const int64_t least = peak_bound(schedule).bytes[0];
  double slowest = 0, fastest = 0;
  for (const int64_t more : {int64_t{0}, least / 4, least}) {
    Device::Capacities capacities;
    capacities.fill(Device::unlimited_bytes());
    capacities[0] = least + more;
    const Schedule ahead = with_few_ahead(schedule, capacities, device("h200"));
    EXPECT_LE(peak_bound(ahead).bytes[0], capacities[0]);
    fastest = simulate(ahead, device("h200")).step_s;
    EXPECT_LE(fastest, step_s(plan, device("h200")));
    if (slowest == 0) slowest = fastest;
  }
  EXPECT_LT(fastest, slowest);
}

}  // namespace
}  // namespace stow
