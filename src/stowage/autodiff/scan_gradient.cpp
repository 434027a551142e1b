#include "stowage/autodiff/scan_gradient.h"

#include "stowage/ops/build.h"

namespace stow {
namespace {

ReverseSpec spec_of(const std::vector<bool>& varied_in, const std::vector<bool>& useful_out) {
  ReverseSpec spec;
  for (size_t i = 0; i < varied_in.size(); ++i)
    if (varied_in[i]) spec.wrt.push_back(static_cast<int>(i));
  for (size_t i = 0; i < useful_out.size(); ++i)
    if (useful_out[i]) spec.outputs.push_back(static_cast<int>(i));
  return spec;
}

// Activity of the body at its fixed point over iterations: what a carry becomes, it enters as.
Activity widen_carries(const Graph& body, const ScanParams& p, std::vector<bool>& varied_in,
                       std::vector<bool>& useful_out) {
  while (true) {
    const Activity a = activity(body, spec_of(varied_in, useful_out));
    bool changed = false;
    for (int k = 0; k < p.n_carries; ++k) {
      const size_t in = static_cast<size_t>(p.n_consts + k), out = static_cast<size_t>(k);
      if (!varied_in[in] && a.varied(body.outputs()[out])) varied_in[in] = changed = true;
      if (!useful_out[out] && a.useful(body.inputs()[in])) useful_out[out] = changed = true;
    }
    if (!changed) return a;
  }
}

}  // namespace

ScanGradient differentiate_scan(const Node& scan, const Activity& outer, bool on_device) {
  const auto& p = scan.as<ScanParams>();
  const Graph body = flatten_checkpoints(*scan.graphs[0]);
  const size_t n_in = body.inputs().size(), n_out = body.outputs().size();
  const auto is_float_value = [&](ValueId v) { return is_float(body.type(v).dtype); };

  std::vector<bool> varied_in(n_in), useful_out(n_out);
  for (size_t i = 0; i < n_in; ++i)
    varied_in[i] = outer.varied(scan.operands[i]) && is_float_value(body.inputs()[i]);
  for (size_t i = 0; i < n_out; ++i)
    useful_out[i] =
        outer.useful(scan.result(static_cast<int>(i))) && is_float_value(body.outputs()[i]);
  const Activity a = widen_carries(body, p, varied_in, useful_out);

  ScanGradient g;
  const size_t first_x = static_cast<size_t>(p.n_consts + p.n_carries);
  for (int k = 0; k < p.n_carries; ++k)
    if (varied_in[static_cast<size_t>(p.n_consts + k)] && useful_out[static_cast<size_t>(k)])
      g.active_carries.push_back(k);
  for (int i = 0; i < p.n_consts; ++i)
    if (a.active(body.inputs()[static_cast<size_t>(i)])) g.active_consts.push_back(i);
  for (size_t i = first_x; i < n_in; ++i)
    if (a.active(body.inputs()[i])) g.active_xs.push_back(static_cast<int>(i));
  for (size_t i = static_cast<size_t>(p.n_carries); i < n_out; ++i)
    if (useful_out[i] && a.varied(body.outputs()[i])) g.active_ys.push_back(static_cast<int>(i));

  ReverseSpec spec;
  spec.on_device = on_device;
  for (int k : g.active_carries) {
    spec.wrt.push_back(p.n_consts + k);
    spec.outputs.push_back(k);
  }
  spec.wrt.insert(spec.wrt.end(), g.active_consts.begin(), g.active_consts.end());
  spec.accumulated = g.active_consts;
  spec.provenance = scan.provenance;
  spec.wrt.insert(spec.wrt.end(), g.active_xs.begin(), g.active_xs.end());
  spec.outputs.insert(spec.outputs.end(), g.active_ys.begin(), g.active_ys.end());
  const Graph joint = reverse(body, spec);

  // The same with the running sum of each active const among the backward carries.
  JointScan js;
  js.forward = p;
  js.forward.n_residuals = 0;
  js.backward_reverse = !p.reverse;
  js.n_backward_carries = static_cast<int>(g.active_carries.size() + g.active_consts.size());
  for (int i : g.active_ys)
    js.backward_in_axes.push_back(p.out_axes[static_cast<size_t>(i - p.n_carries)]);
  for (int i : g.active_xs)
    js.backward_out_axes.push_back(p.in_axes[static_cast<size_t>(i) - first_x]);
  ValueMap map(joint);
  const auto add_input = [&](size_t i) {
    copy_input(joint, i, js.body, map);
  };
  const size_t n_cotangents = n_in + g.active_carries.size();
  const size_t n_without_sums = joint.inputs().size() - g.active_consts.size();
  for (size_t i = 0; i < n_cotangents; ++i) add_input(i);
  for (size_t i = n_without_sums; i < joint.inputs().size(); ++i) add_input(i);
  for (size_t i = n_cotangents; i < n_without_sums; ++i) add_input(i);
  const std::vector<RegionId> regions = import_regions(joint, js.body, RegionId());
  for (const Node& node : joint.nodes()) copy_node(joint, node, js.body, map, regions);
  js.body.set_outputs(map.images(joint.outputs()));
  g.split = split_joint_scan(js);
  // Stacked results that were residuals of a scan differentiated before stay what they are: plain
  // results; only the new ones are residuals of this derivative.
  return g;
}

}  // namespace stow
