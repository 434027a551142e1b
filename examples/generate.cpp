// A language model from a Hugging Face folder or a GGUF file: how well it expects a text, and how
// it goes on.
//
//   generate MODEL TEXT
#include <stowage/lm/generate.h>
#include <stowage/lm/score.h>

#include <cmath>
#include <cstdio>

using namespace stow;

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: generate MODEL TEXT\n"), 1;
  const Result<lm::Model> model = lm::load(argv[1], {.dtype = DType::kF32});
  if (!model) return fmt::print(stderr, "{}\n", model.error()), 1;
  if (!model->files().text) return fmt::print(stderr, "{}\n", model->files().no_text), 1;
  const Result<std::vector<int32_t>> ids = model->files().text->tokenizer.encode(argv[2]);
  if (!ids) return fmt::print(stderr, "{}\n", ids.error()), 1;
  if (ids->empty()) return fmt::print(stderr, "expected a text of at least one token\n"), 1;

  lm::TokenRows rows{.n = 1, .length = static_cast<int64_t>(ids->size()), .tokens = *ids};
  const lm::ScoreResult scored = lm::score(*model, rows);
  fmt::print("{} tokens, perplexity {:.3f}\n", ids->size(), std::exp(-scored.mean_logprob()));

  lm::GenerateOptions options{.max_tokens = 48};
  options.sampling.temperature = 0;
  const auto made = lm::generate(*model, {*ids}, options, [](size_t, const std::string& piece) {
    fmt::print("{}", piece);  // as soon as it is certain
    std::fflush(stdout);
  });
  if (!made) return fmt::print(stderr, "{}\n", made.error()), 1;
  const bool is_whole = made->front().finish == lm::FinishReason::kStop;
  fmt::print("\n{} tokens{}\n", made->front().ids.size(), is_whole ? ", the end" : "");
}
