#include "stowage/api/residuals.h"

#include "stowage/api/trace.h"
#include "stowage/autodiff/reverse.h"

namespace stow {

std::vector<SavedResidual> saved_residuals_of(const TreeRef& arguments,
                                              const LeafFunction& function, SourceLocation at) {
  const CallSiteScope site(at);
  const std::vector<std::string> paths = paths_of(arguments);
  std::vector<ArrayType> types;
  for (const Array& leaf : leaves_of(arguments)) types.push_back(leaf.type());
  const ActiveTrace active(std::make_shared<Trace>("saved_residuals", true));
  const NestedTrace nested =
      trace_nested("saved_residuals", types, paths, types.size(),
                   [&](std::span<const Array> inputs) { return leaves_of(function(inputs).ref); });
  ReverseSpec spec;
  for (size_t i = 0; i < types.size(); ++i)
    if (is_float(types[i].dtype)) spec.wrt.push_back(static_cast<int>(i));
  for (size_t i = 0; i < nested.graph.outputs().size(); ++i)
    if (is_float(nested.graph.type(nested.graph.outputs()[i]).dtype))
      spec.outputs.push_back(static_cast<int>(i));
  return saved_residuals(reverse(nested.graph, spec), types.size(), spec.outputs.size());
}

std::string to_string(const std::vector<SavedResidual>& residuals) {
  std::string text;
  for (const SavedResidual& residual : residuals) text += to_string(residual) + "\n";
  return text;
}

}  // namespace stow
