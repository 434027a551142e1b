#include "stowage/ir/schedule_parser.h"

#include <charconv>
#include <cstring>
#include <utility>

#include "stowage/ir/field_reader.h"
#include "stowage/ir/fields.h"
#include "stowage/ir/schedule_printer.h"

namespace stow {
namespace {

const PolicyResolver kNoPolicies;

class ScheduleParser : private FieldReader {
 public:
  explicit ScheduleParser(std::string_view text) : FieldReader(text, kNoPolicies) {}

  Schedule whole_text() {
    if (!take_word("schedule")) unexpected("'schedule'");
    braced([&](std::string_view name) {
      if (name == "alignment") return set(s_.alignment_bytes, 1, int64_t{1} << 20);
      if (name != "loops") return false;
      int64_t n = 0;
      set(n, 0, kMaxLoops);
      s_.n_loops = static_cast<size_t>(n);
      return true;
    });
    expect('{');
    while (at_numbered('b')) buffer();
    // Buffers and what they refer to are known from here on.
    for (const Later& later : later_)
      if (later.buffer >= s_.buffers.size())
        error(later.offset, "expected a buffer below b{}, found b{}", s_.buffers.size(),
              later.buffer);
    if (!take_word("inputs")) unexpected("'inputs' or a buffer such as b0");
    s_.inputs = views_of_line();
    if (!take_word("outputs")) unexpected("'outputs'");
    s_.outputs = views_of_line();
    while (take_word("limit")) s_.limits.push_back(string("a sentence in quotes"));
    s_.instructions = instructions(1);
    if (peek().kind != TokenKind::kEnd) unexpected("end of text after the schedule");
    return std::move(s_);
  }

 private:
  struct Later {  // a buffer that was named before all were known
    size_t buffer, offset;
  };

  int64_t number(std::string_view expected) { return integer(0, kMaxTextInteger, expected); }
  bool set(int64_t& value, int64_t min, int64_t max) {
    value = integer(min, max, "an integer");
    return true;
  }
  bool set(bool& value) {
    value = take_word("true");
    if (!value && !take_word("false")) unexpected("true or false");
    return true;
  }

  // {name=value, …}, where there is one: field(name) reads a value, or returns false for a name
  // that there is not.
  template <typename Field>
  void braced(Field field) {
    if (!take_punct('{')) return;
    list('}', [&] {
      const Token name = take(TokenKind::kWord, "the name of a field");
      expect('=');
      if (!field(name.text)) error(name.offset, "there is no field {}", describe(name));
    });
  }

  // A letter and digits: b3, l0.
  bool at_numbered(char letter) const {
    const std::string_view text = peek().text;
    return peek().kind == TokenKind::kWord && text.size() > 1 && text[0] == letter &&
           text.find_first_not_of("0123456789", 1) == std::string_view::npos;
  }
  size_t numbered(char letter, const char* expected) {
    if (!at_numbered(letter)) unexpected(expected);
    const Token token = take();
    size_t value = 0;
    const char* const end = token.text.data() + token.text.size();
    const auto [stop, code] = std::from_chars(token.text.data() + 1, end, value);
    if (code != std::errc() || stop != end || value >= BufferId::kInvalid)
      error(token.offset, "expected a number below 4294967295, found {}", describe(token));
    return value;
  }
  BufferId buffer_id() {
    const size_t at = offset(), id = numbered('b', "a buffer such as b0");
    if (id >= s_.buffers.size())
      error(at, "expected a buffer below b{}, found b{}", s_.buffers.size(), id);
    return BufferId(id);
  }
  LoopId loop_id() {
    const size_t at = offset(), id = numbered('l', "a loop such as l0");
    if (id >= s_.n_loops) error(at, "expected a loop below l{}, found l{}", s_.n_loops, id);
    return LoopId(id);
  }
  ProvenancePtr provenance_if_any() { return take_punct('@') ? provenance() : nullptr; }

  void buffer() {
    const size_t at = offset();
    if (const size_t id = numbered('b', ""); id != s_.buffers.size())
      error(at, "expected b{} as the name of the next buffer, found b{}", s_.buffers.size(), id);
    Buffer b;
    expect(':');
    b.bytes = number("bytes");
    if (!take_word("bytes")) unexpected("'bytes'");
    if (at_word("device") || at_word("pinned_host") || at_word("disk")) field(b.kind);
    if (take_word("input"))
      b.role = BufferRole::kInput;
    else if (take_word("output"))
      b.role = BufferRole::kOutput;
    else if (!take_word("temporary"))
      unexpected("temporary, input or output");
    if (peek().kind == TokenKind::kNumber)
      b.index = static_cast<int>(integer(0, INT32_MAX, "the number of an argument or result"));
    b.slot_bytes = b.bytes;
    braced([&](std::string_view name) {
      if (name == "slots") return set(b.slots, 0, kMaxTextInteger);
      if (name == "slot_bytes") return set(b.slot_bytes, 0, kMaxTextInteger);
      if (name == "apart") return set(b.independent_slots);
      if (name == "separate") return set(b.outside_arena);
      if (name == "parts") {
        field(b.parts);
      } else if (name == "first_slot") {
        later_.push_back({0, offset()});
        later_.back().buffer = numbered('b', "a buffer such as b0");
        b.first_slot = BufferId(later_.back().buffer);
      } else if (name == "each") {
        expect('[');
        list(']', [&] {
          LoopDim dim;
          dim.loop = loop_id();
          if (!take_word("of")) unexpected("'of' and a number of iterations");
          dim.trip_count = number("a number of iterations");
          b.loop_dims.push_back(dim);
        });
      } else {
        return false;
      }
      return true;
    });
    if (peek().kind == TokenKind::kString) b.label = string("");
    b.provenance = provenance_if_any();
    if (take_word("parts")) {
      expect('[');
      list(']', [&] {
        if (take_word("none"))
          b.part_provenance.push_back(nullptr);
        else
          expect('@'), b.part_provenance.push_back(provenance());
      });
    }
    s_.buffers.push_back(std::move(b));
  }

  bool at_dtype() const {
    return peek().kind == TokenKind::kWord && parse_dtype(peek().text).has_value();
  }
  Dims extents() {
    Dims dims;
    expect('[');
    list(']', [&] {
      if (dims.size() == kMaxRank) error(offset(), "expected at most {} axes", kMaxRank);
      dims.push_back(number("an extent"));
    });
    return dims;
  }
  Dims strides(size_t rank) {
    const size_t at = offset();
    Dims strides;
    field(strides);
    if (strides.size() != rank)
      error(at, "expected {} strides, one an axis, found {}", rank, strides.size());
    return strides;
  }

  View view() {
    View v;
    if (!at_dtype()) unexpected("a window such as f32[8] b0");
    field(v.dtype);
    v.dims = extents();
    if (take_word("by")) {
      v.strides = strides(v.dims.size());
    } else {
      v.strides.assign(v.dims.size(), 1);
      for (size_t i = v.dims.size(); i-- > 1;)
        if (__builtin_mul_overflow(v.strides[i], v.dims[i], &v.strides[i - 1]))
          error(offset(), "the window has more than 2^63 elements");
    }
    if (at_numbered('b')) v.buffer = buffer_id();
    if (take_word("at")) v.offset_bytes = integer(-kMaxTextInteger, kMaxTextInteger, "bytes");
    while (at_numbered('l')) {
      LoopTerm term;
      term.loop = loop_id();
      braced([&](std::string_view name) {
        constexpr int64_t kMax = kMaxTextInteger;
        if (name == "start") return set(term.start, -kMax, kMax);
        if (name == "step") return set(term.step, -kMax, kMax);
        if (name == "modulo") return set(term.modulo, 0, kMax);
        return name == "stride" && set(term.stride_bytes, -kMax, kMax);
      });
      v.terms.push_back(term);
    }
    v.begins_lifetime = take_word("begins");
    return v;
  }
  std::vector<View> views_of_line() {
    std::vector<View> list;
    if (!at_dtype()) return list;
    do list.push_back(view());
    while (take_punct(','));
    return list;
  }
  std::vector<View> views_in_parentheses() {
    std::vector<View> views;
    expect('(');
    list(')', [&] { views.push_back(view()); });
    return views;
  }

  // Behind "rows".
  std::shared_ptr<const RowProgram> row_program() {
    auto p = std::make_shared<RowProgram>();
    p->dims = extents();
    const auto rank = static_cast<int64_t>(p->dims.size());
    int64_t n_row_dims = 0, n_group_dims = 0;
    const size_t at = offset();
    braced([&](std::string_view name) {
      if (name == "n_row_dims") return set(n_row_dims, 0, rank);
      return name == "n_group_dims" && set(n_group_dims, 0, rank);
    });
    if (n_group_dims > n_row_dims) error(at, "groups are of row dimensions, which are fewer");
    p->n_row_dims = static_cast<int>(n_row_dims);
    p->n_group_dims = static_cast<int>(n_group_dims);
    expect('{');
    while (at_word("input") || at_word("output")) {
      std::vector<RowOperand>& operands = take_word("input") ? p->inputs : (take(), p->outputs);
      const size_t here = offset();
      if (const auto i = static_cast<size_t>(number("the number of an operand"));
          i != operands.size())
        error(here, "expected {} as the number of the next operand, found {}", operands.size(), i);
      RowOperand operand;
      field(operand.dtype);
      if (!take_word("by")) unexpected("'by' and strides");
      operand.strides = strides(p->dims.size());
      operands.push_back(std::move(operand));
    }
    while (!take_punct('}')) step(*p);
    return p;
  }

  // The number of one of n things.
  int32_t below(size_t n, const char* expected) {
    const size_t at = offset();
    if (n == 0) error(at, "there is no {} to number", expected);
    return static_cast<int32_t>(
        integer(0, static_cast<int64_t>(n) - 1, fmt::format("the number of {}", expected)));
  }

  void step(RowProgram& p) {
    const auto value_below = [&](size_t n) {
      const Token token = take(TokenKind::kValue, "a value such as %0");
      size_t id = 0;
      const char* const end = token.text.data() + token.text.size();
      if (std::from_chars(token.text.data(), end, id).ptr != end || id >= n)
        error(token.offset, "expected a step below %{}, found {}", n, describe(token));
      return static_cast<int32_t>(id);
    };
    const size_t number = p.steps.size(), at = offset();
    if (value_below(number + 1) != static_cast<int32_t>(number))
      error(at, "expected %{} as the number of the next step", number);
    expect('=');
    Step s;
    size_t most_args = 1;
    if (take_word("load")) {
      s.kind = StepKind::kLoad;
      s.index = below(p.inputs.size(), "an input");
      most_args = 0;
    } else if (take_word("iota")) {
      s.kind = StepKind::kIota;
      s.index = below(p.dims.size(), "a dimension");
      most_args = 0;
    } else if (take_word("constant")) {
      s.kind = StepKind::kConstant;
      field(s.dtype);
      const size_t here = offset();
      const std::vector<std::byte> bytes = elements(s.dtype);
      if (static_cast<int64_t>(bytes.size()) != dtype_bytes(s.dtype))
        error(here, "expected one number");
      std::memcpy(&s.imm, bytes.data(), bytes.size());
      most_args = 0;
    } else if (take_word("store")) {
      s.kind = StepKind::kStore;
      s.index = below(p.outputs.size(), "an output");
    } else if (take_word("rows")) {
      s.kind = StepKind::kReduceRow;
      s.op = op("the name of a reduction");
    } else if (take_word("columns")) {
      s.kind = StepKind::kReduceColumns;
      s.index = below(p.outputs.size(), "an output");
      s.op = op("the name of a reduction");
    } else {
      s.op = op("load, constant, iota, rows, columns, store or the name of an op");
      most_args = 3;
    }
    if (most_args > 0) {
      expect('(');
      size_t n = 0;
      list(')', [&] {
        if (n == most_args) error(offset(), "expected at most {} operands", most_args);
        s.args[n++] = value_below(number);
      });
    }
    if (s.kind != StepKind::kConstant) {
      if (!take_punct(':')) unexpected("':' and a dtype");
      field(s.dtype);
    }
    p.steps.push_back(s);
  }

  Instruction kernel() {
    Kernel k;
    k.outputs = views_of_line();
    if (!k.outputs.empty()) expect('=');
    k.op = op("an instruction: a window, an op, loop or branch");
    k.inputs = views_in_parentheses();
    if (at_punct('{')) {
      k.params = empty_params(k.op);
      params(k.params, k.op);
    }
    const bool behind = take_word("behind");
    if (take_word("rows")) {
      k.kind = behind ? KernelKind::kOp : KernelKind::kRows;
      k.program = row_program();
    } else if (behind) {
      unexpected("'rows'");
    }
    while (take_word("before")) {
      const int64_t operand = below(k.prologues.size(), "an operand");
      Kernel::Prologue& prologue = k.prologues[static_cast<size_t>(operand)];
      expect('(');
      prologue.view = view();
      expect(')');
      if (!take_word("rows")) unexpected("'rows'");
      prologue.program = row_program();
    }
    if (take_word("scratch")) {
      k.scratch_bytes = number("bytes");
      if (at_numbered('b')) k.scratch = buffer_id();
    }
    for (const MovePhase phase : {MovePhase::kWhole, MovePhase::kStart, MovePhase::kDone})
      if (take_word(phase_name(phase))) {
        k.phase = phase;
        if (peek().kind == TokenKind::kNumber)
          k.transfer = static_cast<int>(integer(0, INT32_MAX, "the number of a pair"));
        break;
      }
    Instruction instruction;
    instruction.guard = guard();
    k.provenance = provenance_if_any();
    instruction.body = SharedKernel(std::move(k));
    return instruction;
  }

  Guard guard() {
    Guard g;
    if (take_word("from")) g.begin = number("an iteration");
    if (take_word("to")) g.end = number("an iteration");
    return g;
  }

  std::vector<Instruction> block(int depth) {
    expect('{');
    return instructions(depth + 1);
  }
  // Up to and with the brace that closes them.
  std::vector<Instruction> instructions(int depth) {
    if (depth > kMaxGraphDepth)
      error(offset(), "instructions are nested more than {} deep", kMaxGraphDepth);
    std::vector<Instruction> list;
    while (!take_punct('}')) {
      if (take_word("loop"))
        list.push_back(loop(depth));
      else if (take_word("branch"))
        list.push_back(branch(depth));
      else
        list.push_back(kernel());
    }
    return list;
  }

  Instruction loop(int depth) {
    auto l = std::make_shared<Loop>();
    l->id = loop_id();
    if (take_word("while")) {
      l->trip_count = Loop::kOpen;
      l->predicate = view();
      if (!take_word("after")) unexpected("'after'");
      l->condition = block(depth);
      if (!take_word("leaves")) unexpected("'leaves'");
      l->carries = views_in_parentheses();
      if (!take_word("do")) unexpected("'do'");
    } else {
      if (!take_word("of")) unexpected("'of' and a number of iterations, or 'while'");
      l->trip_count = number("a number of iterations");
    }
    l->body = block(depth);
    Instruction instruction;
    instruction.guard = guard();
    l->provenance = provenance_if_any();
    instruction.body = std::move(l);
    return instruction;
  }

  Instruction branch(int depth) {
    auto b = std::make_shared<Branch>();
    b->index = view();
    if (!take_word("leaves")) unexpected("'leaves'");
    b->results = views_in_parentheses();
    expect('[');
    list(']', [&] { b->alternatives.push_back(block(depth)); });
    Instruction instruction;
    instruction.guard = guard();
    b->provenance = provenance_if_any();
    instruction.body = std::move(b);
    return instruction;
  }

  Schedule s_;
  std::vector<Later> later_;
};

}  // namespace

Result<Schedule> parse_schedule(std::string_view text, std::string_view file) {
  if (text.size() > kMaxTextBytes)
    return fail("{}:1:1: expected at most {} bytes of text, found {}", file, kMaxTextBytes,
                text.size());
  try {
    return ScheduleParser(text).whole_text();
  } catch (const SyntaxError& e) {
    return failure_at(text, file, e);
  }
}

}  // namespace stow
