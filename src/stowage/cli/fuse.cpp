// `fuse`: an adapter merged into its model.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "stowage/cli/arguments.h"
#include "stowage/cli/commands.h"
#include "stowage/cli/model_arguments.h"
#include "stowage/io/files.h"
#include "stowage/lm/fuse.h"

namespace stow {

Result<int> run_fuse(std::span<const std::string> command_line) {
  std::string model, adapter, out, dtype_text;
  CLI::App app("Merges a LoRA adapter into its model and writes a Hugging Face folder.",
               "./stowage fuse");
  app.set_help_flag("-h,--help", "This text");
  app.add_option("--model", model, "A Hugging Face folder, or a GGUF file")
      ->type_name("PATH")
      ->required();
  app.add_option("--adapter", adapter, "A PEFT folder with an adapter of the model")
      ->type_name("DIR")
      ->required();
  app.add_option("--out", out, "The folder to write; must not be one of the others")
      ->type_name("DIR")
      ->required();
  app.add_option("--dtype", dtype_text,
                 "f32 or bf16 (default: that of the weights, if it is one of them)")
      ->type_name("TYPE");
  const Result<bool> helped = parse_or_help(app, "fuse", command_line);
  if (!helped) return helped.failure();
  if (*helped) return kExitDone;
  const Result<std::optional<DType>> dtype = written_dtype(dtype_text);
  if (!dtype) return fail("fuse: {}", dtype.error());
  for (const std::string& other : {model, adapter}) {
    std::error_code error;
    if (std::filesystem::equivalent(out, other, error))
      return fail("fuse: --out {} is read from; expected another folder", out);
  }
  if (Result<void> writable = check_writable_directory(out); !writable) return writable.failure();
  const Result<lm::ModelFiles> files = lm::ModelFiles::open(model);
  if (!files) return files.failure();
  const Result<lm::AdapterFiles> opened =
      lm::AdapterFiles::open(adapter, files->config, files->weights.get());
  if (!opened) return opened.failure();
  const Result<lm::Fused> fused = lm::fuse(*files, *opened, out, *dtype);
  if (!fused) return fused.failure();
  fmt::print("{}: {} modules merged, {}{}\n", out, opened->plan.targets.size(),
             dtype_name(fused->dtype),
             fused->untied ? "; the head is untied from the embedding" : "");
  return kExitDone;
}

}  // namespace stow
