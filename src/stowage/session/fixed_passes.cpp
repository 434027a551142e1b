#include "stowage/session/fixed_passes.h"

#include <array>

#include "stowage/passes/dead_code.h"
#include "stowage/passes/move_parts.h"
#include "stowage/passes/residuals.h"
#include "stowage/passes/simplify.h"
#include "stowage/passes/sink_into_scans.h"
#include "stowage/passes/sink_moves.h"
#include "stowage/passes/slice_work.h"
#include "stowage/passes/unroll.h"

namespace stow {
namespace {

constexpr auto kPasses = std::to_array<FixedPass>({
    {"simplify", [](const Graph& g, const PolicyPtr&, PassReport&) { return simplify(g); }},
    {"parts", [](const Graph& g, const PolicyPtr&, PassReport&) { return move_parts(g); }},
    {"residuals", [](const Graph& g, const PolicyPtr& policy,
                     PassReport& report) { return realize_residuals(g, policy, &report); }},
    {"prune", [](const Graph& g, const PolicyPtr&, PassReport&) { return remove_dead_code(g); }},
    {"sink_moves", [](const Graph& g, const PolicyPtr&, PassReport&) { return sink_moves(g); }},
    {"sink_into_scans",
     [](const Graph& g, const PolicyPtr&, PassReport&) { return sink_into_scans(g); }},
    {"unroll", [](const Graph& g, const PolicyPtr&, PassReport&) { return unroll_scans(g); }},
    {"prune_unrolled",
     [](const Graph& g, const PolicyPtr&, PassReport&) { return remove_dead_code(g); }},
    {"sums", [](const Graph& g, const PolicyPtr&, PassReport&) { return sum_slices(g); }},
});
static_assert(kPasses[kResidualsPass].name == "residuals");
static_assert(kPasses[kNumResidualPasses - 1].name == "prune");

}  // namespace

std::span<const FixedPass> fixed_passes() { return kPasses; }

}  // namespace stow
