// `export`: the adapter or the model of a training checkpoint, in files for other programs.
#include "stowage/train/export.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "stowage/cli/arguments.h"
#include "stowage/cli/commands.h"
#include "stowage/cli/model_arguments.h"
#include "stowage/io/files.h"

namespace stow {

Result<int> run_export(std::span<const std::string> command_line) {
  std::string checkpoint, adapter, model, dtype_text;
  bool best = false;
  CLI::App app("Writes what a fine-tuning run has trained, from its checkpoint.",
               "./stowage export");
  app.set_help_flag("-h,--help", "This text");
  app.add_option(
         "--checkpoint", checkpoint,
         "The train.out folder, whose newest checkpoint is used, or the JSON file of a checkpoint")
      ->type_name("DIR")
      ->required();
  app.add_flag(
      "--best", best,
      "Uses the checkpoint of that run with the lowest loss in evaluation (eval.keep_best)");
  app.add_option("--adapter", adapter, "The PEFT folder to write: the adapter alone")
      ->type_name("DIR");
  app.add_option("--model", model,
                 "The Hugging Face folder to write: all weights, with an adapter merged")
      ->type_name("DIR");
  app.add_option("--dtype", dtype_text,
                 "f32 or bf16, with --model (default: that of the weights, or of the model if an "
                 "adapter is merged)")
      ->type_name("TYPE");
  const Result<bool> helped = parse_or_help(app, "export", command_line);
  if (!helped) return helped.failure();
  if (*helped) return kExitDone;
  if (adapter.empty() == model.empty())
    return fail("export: expected either --adapter DIR or --model DIR, got {}",
                adapter.empty() ? "neither" : "both");
  const Result<std::optional<DType>> dtype = written_dtype(dtype_text);
  if (!dtype) return fail("export: {}", dtype.error());
  if (*dtype && model.empty())
    return fail("export: --dtype has no effect with --adapter: adapters are f32; leave it out");
  const std::string& out = adapter.empty() ? model : adapter;
  if (Result<void> writable = check_writable_directory(out); !writable) return writable.failure();
  const WhichCheckpoint which = best ? WhichCheckpoint::kBest : WhichCheckpoint::kNamed;
  const Result<Exported> done = adapter.empty() ? export_model(checkpoint, out, *dtype, which)
                                                : export_adapter(checkpoint, out, which);
  if (!done) return done.failure();
  fmt::print("{}: the {} of {}, step {}{}\n", out, adapter.empty() ? "model" : "adapter",
             done->checkpoint, done->step, done->is_ema ? ", averaged over steps" : "");
  return kExitDone;
}

}  // namespace stow
