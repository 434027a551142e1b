#include "stowage/runtime/cpu/kernels/loop_code.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <iterator>
#include <type_traits>
#include <vector>

namespace stow::cpu {
namespace {

// A value that a register can hold; bools and words share one.
enum class Held : uint8_t { kF32, kWord, kByte, kNot };
template <typename T>
constexpr Held held() {
  if constexpr (std::is_same_v<T, float>)
    return Held::kF32;
  else if constexpr (std::is_same_v<T, int32_t> || std::is_same_v<T, uint32_t>)
    return Held::kWord;
  else if constexpr (sizeof(T) == 1)
    return Held::kByte;
  else
    return Held::kNot;
}

// The sources of an element's operands: memory, except for those named, which are the last result
// of their type or, behind `After`, the one before.
#define STOW_FOR_EACH_WORD_SOURCE(X, ...)                                                         \
  X(kMemory, 0, 0, __VA_ARGS__) X(kA, 1, 0, __VA_ARGS__) X(kB, 2, 0, __VA_ARGS__)                 \
  X(kC, 4, 0, __VA_ARGS__) X(kAB, 3, 0, __VA_ARGS__) X(kAC, 5, 0, __VA_ARGS__)
#define STOW_FOR_EACH_F32_SOURCE(X, ...)                                                          \
  STOW_FOR_EACH_WORD_SOURCE(X, __VA_ARGS__)                                                       \
  X(kD, 8, 0, __VA_ARGS__) X(kAfterA, 0, 1, __VA_ARGS__) X(kAfterB, 0, 2, __VA_ARGS__)            \
  X(kAfterC, 0, 4, __VA_ARGS__) X(kBAfterA, 2, 1, __VA_ARGS__) X(kAAfterB, 1, 2, __VA_ARGS__)     \
  X(kCAfterA, 4, 1, __VA_ARGS__) X(kAAfterC, 1, 4, __VA_ARGS__)                                   \
  X(kCAfterB, 4, 2, __VA_ARGS__) X(kBAfterC, 2, 4, __VA_ARGS__)

struct Source {
  unsigned last, before;  // bit k: operand k
};
constexpr Source kSources[] = {
#define STOW_X(from, last, before, none) {last, before},
    STOW_FOR_EACH_F32_SOURCE(STOW_X, 0)
#undef STOW_X
};
#define STOW_X(from, last, before, none) +1
constexpr size_t kNumWordSources = STOW_FOR_EACH_WORD_SOURCE(STOW_X, 0);
constexpr size_t kNumF32Sources = STOW_FOR_EACH_F32_SOURCE(STOW_X, 0);
#undef STOW_X
#define STOW_X(name, out, in, value, kernel) +1
constexpr size_t kNumF32 = STOW_FOR_EACH_F32_SINGLE(STOW_X);
constexpr size_t kNumWord = STOW_FOR_EACH_WORD_SINGLE(STOW_X);
constexpr size_t kNumF64 = STOW_FOR_EACH_F64_SINGLE(STOW_X);
#undef STOW_X

// Handlers in the order of run_loop()'s table.
constexpr size_t kWordHandlers = kNumF32 * kNumF32Sources;
constexpr size_t kF64Handlers = kWordHandlers + kNumWord * kNumWordSources;
constexpr size_t kSelect8Handler = kF64Handlers + kNumF64;
constexpr size_t kSelect64Handler = kSelect8Handler + 1;
constexpr size_t kSelect32Handlers = kSelect64Handler + 1;
constexpr size_t kCopy1Handler = kSelect32Handlers + kNumWordSources;
constexpr size_t kCopy8Handler = kCopy1Handler + 1;
constexpr size_t kCopy4Handlers = kCopy8Handler + 1;  // from memory, the last f32, the last word
constexpr size_t kCommandHandlers = kCopy4Handlers + 3;

struct Types {
  Held operands, result;
  int64_t result_bytes;
};
// clang-format off
constexpr Types kTypes[] = {  // by SingleOp
#define STOW_X(name, out, in, value, kernel) {held<in>(), held<out>(), sizeof(out)},
    STOW_FOR_EACH_SINGLE(STOW_X)
#undef STOW_X
    // Selects: byte, f32, word.
    {Held::kByte, Held::kByte, 1}, {Held::kF32, Held::kF32, 4}, {Held::kNot, Held::kNot, 8},
    // Copies: byte, f32, word.
    {Held::kByte, Held::kByte, 1}, {Held::kF32, Held::kF32, 4}, {Held::kNot, Held::kNot, 8}};
// clang-format on
static_assert(std::size(kTypes) == static_cast<size_t>(SingleOp::kNone));

// The source of most operands among the first n, by those that the registers have: 16 last +
// before.
constexpr std::array<uint8_t, 256> best_sources(size_t n) {
  const auto count = [](const Source& s) {
    return std::popcount(s.last) + std::popcount(s.before);
  };
  std::array<uint8_t, 256> best = {};
  for (unsigned found = 0; found < 256; ++found)
    for (size_t i = 0; i < n; ++i)
      if ((kSources[i].last & ~(found >> 4)) == 0 && (kSources[i].before & ~(found & 15u)) == 0 &&
          count(kSources[i]) > count(kSources[best[found]]))
        best[found] = static_cast<uint8_t>(i);
  return best;
}
constexpr std::array<uint8_t, 256> kBestWordSource = best_sources(kNumWordSources),
                                   kBestF32Source = best_sources(kNumF32Sources);

// The registers, followed from instruction to instruction.
class Registers {
 public:
  explicit Registers(const LastResults& last) : last_(last) {}
  const LastResults& last() const { return last_; }
  void forget() { last_ = {}; }

  // Chooses the handler of an element and follows its result.
  size_t pass(SingleOp op, const Single& s, uint8_t moving) {
    const size_t handler = choose(op, s, moving);
    if ((moving & 1) != 0) {
      forget();  // it may lie over anything
      return handler;
    }
    const Types& types = kTypes[static_cast<size_t>(op)];
    write(s.out, types.result_bytes);
    if (op == SingleOp::kCopy4) {
      if (handler == kCopy4Handlers + 1) last_.f32 = s.out;
      if (handler == kCopy4Handlers + 2) last_.word = s.out;
      return handler;
    }
    if (types.result == Held::kF32) {
      last_.f32_before = last_.f32;
      last_.f32 = s.out;
    }
    if (types.result == Held::kByte || types.result == Held::kWord || op == SingleOp::kSelect32) {
      last_.word = s.out;
      last_.is_byte = types.result == Held::kByte;
    }
    return handler;
  }

  // Memory that changes is no longer what a register holds.
  void write(const std::byte* at, int64_t bytes) {
    const auto meets = [&](const std::byte* value) {
      return value != nullptr && std::less<>()(value, at + bytes) && std::less<>()(at, value + 4);
    };
    if (meets(last_.f32)) last_.f32 = nullptr;
    if (meets(last_.f32_before)) last_.f32_before = nullptr;
    if (meets(last_.word)) last_.word = nullptr;
  }

 private:
  size_t choose(SingleOp op, const Single& s, uint8_t moving) const {
    const auto number = static_cast<size_t>(op);
    const Types& types = kTypes[static_cast<size_t>(op)];
    Source found = {0, 0};
    for (unsigned k = 0; k < std::size(s.args); ++k) {
      if ((moving >> (k + 1) & 1) != 0) continue;
      const bool is_choice = op == SingleOp::kSelect32 && k == 0;
      if (holds(s.args[k], is_choice ? Held::kByte : types.operands)) found.last |= 1u << k;
      if (types.operands == Held::kF32 && last_.f32_before != nullptr &&
          s.args[k] == last_.f32_before)
        found.before |= 1u << k;
    }
    const unsigned sources = found.last << 4 | found.before;
    if (number < kNumF32) return number * kNumF32Sources + kBestF32Source[sources];
    if (number < kNumF32 + kNumWord)
      return kWordHandlers + (number - kNumF32) * kNumWordSources + kBestWordSource[sources];
    if (number < kNumF32 + kNumWord + kNumF64) return kF64Handlers + number - kNumF32 - kNumWord;
    switch (op) {
      case SingleOp::kSelect8:
        return kSelect8Handler;
      case SingleOp::kSelect32:
        return kSelect32Handlers + kBestWordSource[sources];
      case SingleOp::kCopy1:
        return kCopy1Handler;
      case SingleOp::kCopy8:
        return kCopy8Handler;
      case SingleOp::kCopy4:
        return kCopy4Handlers + ((found.last & 1) != 0                                    ? 1
                                 : (moving & 2) == 0 && holds(s.args[0], Held::kWord) ? 2
                                                                                          : 0);
      default:
        return kSelect64Handler;
    }
  }
  bool holds(const std::byte* at, Held as) const {
    if (at == nullptr || as == Held::kNot) return false;
    if (as == Held::kF32) return last_.f32 == at;
    return last_.word == at && last_.is_byte == (as == Held::kByte);
  }

  LastResults last_;
};

template <typename T, bool kLast, bool kBefore>
[[gnu::always_inline]] inline T operand(const std::byte* at, float last, float before,
                                        uint32_t word) {
  if constexpr (kBefore && held<T>() == Held::kF32)
    return before;
  else if constexpr (kLast && held<T>() == Held::kF32)
    return last;
  else if constexpr (kLast && held<T>() == Held::kWord)
    return static_cast<T>(word);
  else if constexpr (kLast && held<T>() == Held::kByte)
    return static_cast<T>(static_cast<uint8_t>(word));
  else
    return load_single<T>(at);
}
template <typename T>
[[gnu::always_inline]] inline void keep(T x, float& last, float& before, uint32_t& word) {
  if constexpr (held<T>() == Held::kF32) {
    before = last;
    last = x;
  } else if constexpr (held<T>() != Held::kNot) {
    word = static_cast<uint32_t>(x);
  }
}

// All handlers, in the order of their numbers.
#define STOW_NAMES_OF_F32(name, out, in, value, kernel) STOW_FOR_EACH_F32_SOURCE(STOW_NAME, name)
#define STOW_NAMES_OF_WORD(name, out, in, value, kernel) STOW_FOR_EACH_WORD_SOURCE(STOW_NAME, name)
#define STOW_NAMES_OF_F64(name, out, in, value, kernel) STOW_NAME(kMemory, 0, 0, name)
#define STOW_NAME(from, from_last, from_before, name) STOW_HANDLER(name##_##from),
#define STOW_HANDLERS                                                                             \
  STOW_FOR_EACH_F32_SINGLE(STOW_NAMES_OF_F32)                                                     \
  STOW_FOR_EACH_WORD_SINGLE(STOW_NAMES_OF_WORD)                                                   \
  STOW_FOR_EACH_F64_SINGLE(STOW_NAMES_OF_F64)                                                     \
  STOW_HANDLER(select8), STOW_HANDLER(select64),                                                  \
  STOW_FOR_EACH_WORD_SOURCE(STOW_NAME, select32)                                                  \
  STOW_HANDLER(copy1), STOW_HANDLER(copy8), STOW_HANDLER(copy4), STOW_HANDLER(copy_f32),          \
  STOW_HANDLER(copy_word), STOW_HANDLER(call_map), STOW_HANDLER(call), STOW_HANDLER(run_kernel),  \
  STOW_HANDLER(move), STOW_HANDLER(move_in_turn), STOW_HANDLER(jump), STOW_HANDLER(jump_if_true), \
  STOW_HANDLER(jump_by_bool), STOW_HANDLER(jump_by_index), STOW_HANDLER(jump_if_false),           \
  STOW_HANDLER(leave_if_false), STOW_HANDLER(next), STOW_HANDLER(again), STOW_HANDLER(enter),     \
  STOW_HANDLER(next_of), STOW_HANDLER(again_of)
constexpr size_t kNumHandlers = kCommandHandlers + static_cast<size_t>(LoopCommand::kAgainNested);

float f32_at(const std::byte* at) { return at ? load_single<float>(at) : 0; }
uint32_t word_at(const LastResults& last) {
  if (!last.word) return 0;
  return last.is_byte ? load_single<uint8_t>(last.word) : load_single<uint32_t>(last.word);
}

// A handler goes to the next one without a return. For clang each is a function that ends in a tail
// call, as a function of so many labels takes it minutes to compile. GCC 12 promises no tail calls;
// its handlers are places in execute().
#ifdef __clang__
#define STOW_BEGIN(name)                                                                       \
  void name([[maybe_unused]] const LoopInstruction* at,                                        \
            [[maybe_unused]] const LoopInstruction* begin, [[maybe_unused]] int64_t iteration, \
            [[maybe_unused]] int64_t trip_count, [[maybe_unused]] float last,                  \
            [[maybe_unused]] float before, [[maybe_unused]] uint32_t word)
#define STOW_HANDLER(name) reinterpret_cast<void*>(&name)
#define STOW_GO()                                                    \
  [[clang::musttail]] return reinterpret_cast<Handler>(at->handler)( \
      at, begin, iteration, trip_count, last, before, word)
#define STOW_LEAVE() return
using Handler = void (*)(const LoopInstruction*, const LoopInstruction*, int64_t, int64_t, float,
                         float, uint32_t);
#else
#define STOW_BEGIN(name) name:
#define STOW_HANDLER(name) &&name
#define STOW_GO() goto*(at->handler)
#define STOW_LEAVE() return nullptr
// Executes a list; without one, returns the handlers.
void* const* execute(const LoopInstruction* const begin, int64_t trip_count,
                           const LastResults& registers) {
  static void* const kHandlers[] = {STOW_HANDLERS};
  static_assert(std::size(kHandlers) == kNumHandlers);
  if (begin == nullptr) return kHandlers;
  const LoopInstruction* at = begin;
  int64_t iteration = 0;
  float last = f32_at(registers.f32), before = f32_at(registers.f32_before);
  uint32_t word = word_at(registers);
  STOW_GO();
#endif
#define STOW_GO_ON()                                                                              \
  ++at;                                                                                           \
  STOW_GO()

#define STOW_OPERAND(type, k, from_last, from_before)                                        \
  operand<type, ((from_last) >> k & 1) != 0, ((from_before) >> k & 1) != 0>(s.args[k], last, \
                                                                            before, word)
#define STOW_CASE(from, from_last, from_before, name, out_type, in_type, value)                   \
  STOW_BEGIN(name##_##from) {                                                                     \
    const Single& s = at->single;                                                                 \
    [[maybe_unused]] const auto a = STOW_OPERAND(in_type, 0, from_last, from_before);             \
    [[maybe_unused]] const auto b = STOW_OPERAND(in_type, 1, from_last, from_before);             \
    [[maybe_unused]] const auto c = STOW_OPERAND(in_type, 2, from_last, from_before);             \
    [[maybe_unused]] const auto d = STOW_OPERAND(in_type, 3, from_last, from_before);             \
    const out_type y = value;                                                                     \
    store_single<out_type>(s.out, y);                                                             \
    keep<out_type>(y, last, before, word);                                                        \
    STOW_GO_ON();                                                                                 \
  }
#define STOW_X(name, out, in, value, kernel)                                                      \
  STOW_FOR_EACH_F32_SOURCE(STOW_CASE, name, out, in, value)
STOW_FOR_EACH_F32_SINGLE(STOW_X)
#undef STOW_X
#define STOW_X(name, out, in, value, kernel)                                                      \
  STOW_FOR_EACH_WORD_SOURCE(STOW_CASE, name, out, in, value)
STOW_FOR_EACH_WORD_SINGLE(STOW_X)
#undef STOW_X
#define STOW_X(name, out, in, value, kernel) STOW_CASE(kMemory, 0, 0, name, out, in, value)
STOW_FOR_EACH_F64_SINGLE(STOW_X)
#undef STOW_X

// Selects words of 32 bits, whatever they mean. The choice is made of words, not by a branch.
#define STOW_CHOICE(from, from_last, from_before, none)                                           \
  STOW_BEGIN(select32_##from) {                                                                   \
    const Single& s = at->single;                                                                 \
    const auto chosen = STOW_OPERAND(uint8_t, 0, from_last, 0);                                   \
    const auto yes = std::bit_cast<uint32_t>(STOW_OPERAND(float, 1, from_last, 0));               \
    const auto no = std::bit_cast<uint32_t>(STOW_OPERAND(float, 2, from_last, 0));                \
    word = chosen != 0 ? yes : no;                                                                \
    store_single(s.out, word);                                                                    \
    before = last;                                                                                \
    last = std::bit_cast<float>(word);                                                            \
    STOW_GO_ON();                                                                                 \
  }
STOW_FOR_EACH_WORD_SOURCE(STOW_CHOICE, 0)

STOW_BEGIN(select8) {
  choose_single<uint8_t>(at->single);
  word = load_single<uint8_t>(at->single.out);
  STOW_GO_ON();
}
STOW_BEGIN(select64) {
  choose_single<uint64_t>(at->single);
  STOW_GO_ON();
}
STOW_BEGIN(copy1) {
  word = load_single<uint8_t>(at->single.args[0]);
  store_single(at->single.out, static_cast<uint8_t>(word));
  STOW_GO_ON();
}
STOW_BEGIN(copy8) {
  store_single(at->single.out, load_single<uint64_t>(at->single.args[0]));
  STOW_GO_ON();
}
STOW_BEGIN(copy4) {
  store_single(at->single.out, load_single<uint32_t>(at->single.args[0]));
  STOW_GO_ON();
}
STOW_BEGIN(copy_f32) {
  store_single(at->single.out, last);
  STOW_GO_ON();
}
STOW_BEGIN(copy_word) {
  store_single(at->single.out, word);
  STOW_GO_ON();
}

STOW_BEGIN(call_map) {
  at->map(*at->map_arguments);
  STOW_GO_ON();
}
STOW_BEGIN(call) {
  at->call->run();
  STOW_GO_ON();
}
STOW_BEGIN(run_kernel) {
  at->run(at->context);
  STOW_GO_ON();
}
STOW_BEGIN(move) {
  *at->address += at->delta;
  STOW_GO_ON();
}
STOW_BEGIN(move_in_turn) {
  *at->address += at->deltas[(iteration + 1) % at->n_deltas];
  STOW_GO_ON();
}
STOW_BEGIN(jump) {
  at += at->target;
  STOW_GO();
}
STOW_BEGIN(jump_if_true) {
  at += load_single<uint8_t>(at->index) != 0 ? at->target : 1;
  STOW_GO();
}
STOW_BEGIN(jump_by_bool) {
  at += at->targets[std::min<int64_t>(load_single<uint8_t>(at->index) != 0, at->n_targets - 1)];
  STOW_GO();
}
STOW_BEGIN(jump_by_index) {
  at += at->targets[std::clamp<int64_t>(load_single<int32_t>(at->index), 0, at->n_targets - 1)];
  STOW_GO();
}
STOW_BEGIN(jump_if_false) {
  at += load_single<uint8_t>(at->index) == 0 ? at->target : 1;
  STOW_GO();
}
STOW_BEGIN(enter) {
  last = f32_at(at->at_begin.f32);
  before = f32_at(at->at_begin.f32_before);
  word = word_at(at->at_begin);
  STOW_GO_ON();
}
STOW_BEGIN(next_of) {
  const bool is_last = ++*at->count == at->trip_count;
  if (is_last) *at->count = 0;
  at += is_last ? at->target : 1;
  STOW_GO();
}
STOW_BEGIN(again_of) {
  const bool is_last = ++*at->count == at->trip_count;
  if (is_last) *at->count = 0;
  at += is_last ? 1 : at->target;
  STOW_GO();
}
STOW_BEGIN(leave_if_false) {
  if (load_single<uint8_t>(at->index) == 0) STOW_LEAVE();
  STOW_GO_ON();
}
STOW_BEGIN(next) {
  if (++iteration == trip_count) STOW_LEAVE();
  STOW_GO_ON();
}
STOW_BEGIN(again) {
  if (++iteration == trip_count) STOW_LEAVE();
  at = begin;
  STOW_GO();
}
#ifdef __clang__
void* const* execute(const LoopInstruction* const begin, int64_t trip_count,
                           const LastResults& registers) {
  static void* const kHandlers[] = {STOW_HANDLERS};
  static_assert(std::size(kHandlers) == kNumHandlers);
  if (begin == nullptr) return kHandlers;
  reinterpret_cast<Handler>(begin->handler)(begin, begin, 0, trip_count, f32_at(registers.f32),
                                            f32_at(registers.f32_before), word_at(registers));
  return nullptr;
}
#else
}
#endif

}  // namespace

namespace {

// True if `all` has what `some` has.
bool has(const LastResults& all, const LastResults& some) {
  return (!some.f32 || some.f32 == all.f32) &&
         (!some.f32_before || some.f32_before == all.f32_before) &&
         (!some.word || (some.word == all.word && some.is_byte == all.is_byte));
}

// The instructions that others jump to, but for the first ones of loops.
std::vector<bool> targets_of(std::span<const LoopInstruction> code) {
  std::vector<bool> is_target(code.size(), false);
  for (size_t i = 0; i < code.size(); ++i) {
    const LoopInstruction& made = code[i];
    const auto mark = [&](int32_t target) {
      is_target[static_cast<size_t>(static_cast<int64_t>(i) + target)] = true;
    };
    switch (made.command) {
      case LoopCommand::kJump:
      case LoopCommand::kJumpIfTrue:
      case LoopCommand::kJumpIfFalse:
      case LoopCommand::kNextNested:
        mark(made.target);
        break;
      case LoopCommand::kJumpByBool:
      case LoopCommand::kJumpByIndex:
        for (int64_t k = 0; k < made.n_targets; ++k) mark(made.targets[k]);
        break;
      default:
        break;
    }
  }
  return is_target;
}

}  // namespace

LastResults link_loop(std::span<LoopInstruction> code, std::span<const uint8_t> moving) {
  void* const* const handlers = execute(nullptr, 0, {});
  const std::vector<bool> is_target = targets_of(code);
  for (LoopInstruction& made : code) {
    if (made.command != LoopCommand::kSingle)
      made.handler = handlers[kCommandHandlers + static_cast<size_t>(made.command) - 1];
    if (made.command == LoopCommand::kEnterNested) made.at_begin = {};
  }
  // A loop's next iteration begins with the registers that the last one left. The first pass finds
  // what they hold, the second one begins with it.
  LastResults at_begin = {};
  const auto pass = [&](bool is_first) {
    bool holds = true;
    const auto end = [&](LastResults& begin, const LastResults& end) {
      if (is_first) begin = end;
      holds = holds && has(end, begin);
    };
    Registers registers(at_begin);
    for (size_t i = 0; i < code.size(); ++i) {
      LoopInstruction& made = code[i];
      if (is_target[i]) registers.forget();
      switch (made.command) {
        case LoopCommand::kSingle:
          made.handler = handlers[registers.pass(made.op, made.single, moving[i])];
          break;
        case LoopCommand::kCallMap:
          if (moving[i] != 0 || !made.map_arguments->is_small) {
            registers.forget();
            break;
          }
          for (const std::byte* out : {static_cast<const std::byte*>(made.map_arguments->out),
                                       made.map_arguments->more[0].data,
                                       made.map_arguments->more[1].data})
            registers.write(out, kSmallElems * static_cast<int64_t>(sizeof(double)));
          break;
        case LoopCommand::kCall:
        case LoopCommand::kRunKernel:
          registers.forget();
          break;
        case LoopCommand::kEnterNested:
          registers = Registers(made.at_begin);
          break;
        case LoopCommand::kAgainNested:
          // kEnterNested stands before the loop's first instruction.
          end(code[static_cast<size_t>(static_cast<int64_t>(i) + made.target) - 1].at_begin,
              registers.last());
          break;
        case LoopCommand::kAgain:
          end(at_begin, registers.last());
          break;
        default:
          break;
      }
    }
    return holds;
  };
  pass(true);
  if (!pass(false)) {
    at_begin = {};
    for (LoopInstruction& made : code)
      if (made.command == LoopCommand::kEnterNested) made.at_begin = {};
    pass(false);
  }
  return at_begin;
}

void run_loop(const LoopInstruction* code, int64_t trip_count, const LastResults& last) {
  execute(code, trip_count, last);
}

}  // namespace stow::cpu
