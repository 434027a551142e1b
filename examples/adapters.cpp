// Two fine-tunings of one model at once: each row of a batch trains its own adapter, each adapter
// is stepped by itself, and what one has learnt is written as a PEFT folder.
//
//   adapters MODEL FOLDER
#include <stowage/lm/adapters.h>

#include <cstdio>

using namespace stow;

namespace {

// A text as a row of a batch, for an adapter.
Result<void> add_row(lm::AdapterBatch& batch, const text::Tokenizer& tokenizer, const char* text,
                     int slot) {
  Result<std::vector<int32_t>> ids = tokenizer.encode(text);
  if (!ids) return ids.failure();
  ids->resize(static_cast<size_t>(batch.length + 1));  // both texts are longer
  batch.tokens.insert(batch.tokens.end(), ids->begin(), ids->end() - 1);
  batch.targets.insert(batch.targets.end(), ids->begin() + 1, ids->end());
  batch.slot.push_back(slot);
  ++batch.rows;
  return {};
}

Result<void> run(const char* path, const char* folder) {
  Result<lm::Model> model = lm::load(path, {.dtype = DType::kF32});
  if (!model) return model.failure();
  if (!model->files().text) return fail("{}", model->files().no_text);
  Result<lm::Adapters> adapters = lm::Adapters::make(*model, {.slots = 3, .max_rank = 8});
  if (!adapters) return adapters.failure();
  const Result<int> a = adapters->create({.rank = 8, .alpha = 16, .seed = 1});
  const Result<int> b = adapters->create({.rank = 4, .alpha = 8, .seed = 2});
  if (!a || !b) return (a ? b : a).failure();

  lm::AdapterBatch batch{.length = 16};
  const text::Tokenizer& tokenizer = model->files().text->tokenizer;
  const char* const texts[] = {"A program says what it will take before it takes it.",
                               "Every plan is checked by somebody who did not make it."};
  if (auto added = add_row(batch, tokenizer, texts[0], *a); !added) return added;
  if (auto added = add_row(batch, tokenizer, texts[1], *b); !added) return added;
  // The base model, for comparison.
  if (auto added = add_row(batch, tokenizer, texts[0], 0); !added) return added;

  for (int i = 0; i <= 20; ++i) {
    const Result<lm::PassOutput> output = adapters->forward_backward(batch);
    if (!output) return output.failure();
    if (i % 10 == 0)
      fmt::print("{:2}: adapter {} loss {:.3f}, adapter {} loss {:.3f}, base {:.3f}\n", i, *a,
                 output->rows[0], *b, output->rows[1], output->rows[2]);
    // A learning rate each, and a gradient that the other's rows are no part of.
    if (auto step = adapters->step(*a, {.lr = 1e-2}); !step) return step.failure();
    if (auto step = adapters->step(*b, {.lr = 2e-2, .weight_decay = 0.1}); !step)
      return step.failure();
  }
  return adapters->save(*a, folder);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: adapters MODEL FOLDER\n"), 1;
  if (const Result<void> done = run(argv[1], argv[2]); !done)
    return fmt::print(stderr, "{}\n", done.error()), 1;
  fmt::print("saved in {}\n", argv[2]);
}
