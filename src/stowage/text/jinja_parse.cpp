#include "stowage/text/jinja_parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "stowage/text/jinja_lex.h"

namespace stow::text::jinja {
namespace {

constexpr int kMaxNesting = 100;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Block run() {
    Block block = statements({});
    if (peek().kind != TokenKind::kEof) fail_here("unexpected end of a block");
    return block;
  }

 private:
  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  Token next() { return tokens_[std::min(at_++, tokens_.size() - 1)]; }
  bool is_symbol(std::string_view s, size_t ahead = 0) const {
    return peek(ahead).kind == TokenKind::kSymbol && peek(ahead).text == s;
  }
  bool is_name(std::string_view s, size_t ahead = 0) const {
    return peek(ahead).kind == TokenKind::kName && peek(ahead).text == s;
  }
  bool take_symbol(std::string_view s) { return is_symbol(s) ? (++at_, true) : false; }
  bool take_name(std::string_view s) { return is_name(s) ? (++at_, true) : false; }
  [[noreturn]] void fail_here(std::string_view message) const {
    syntax_error(peek().line, message);
  }
  void expect_symbol(std::string_view s) {
    if (!take_symbol(s)) fail_here(fmt::format("expected '{}', got '{}'", s, peek().text));
  }
  std::string expect_name() {
    if (peek().kind != TokenKind::kName)
      fail_here(fmt::format("expected a name, got '{}'", peek().text));
    return next().text;
  }
  void expect(TokenKind kind, std::string_view what) {
    if (peek().kind != kind) fail_here(fmt::format("expected {}, got '{}'", what, peek().text));
    ++at_;
  }

  struct Deeper {
    explicit Deeper(Parser& parser) : depth(parser.depth_) {
      if (++depth > kMaxNesting) parser.fail_here("the template nests too deep");
    }
    ~Deeper() { --depth; }
    int& depth;
  };

  // Statements up to a tag of one of these names, which stays.
  Block statements(std::initializer_list<std::string_view> ends) {
    const Deeper deeper(*this);
    Block block;
    for (;;) {
      const Token& token = peek();
      if (token.kind == TokenKind::kEof) {
        if (ends.size() > 0) fail_here(fmt::format("expected {{% {} %}}", *(ends.end() - 1)));
        return block;
      }
      if (token.kind == TokenKind::kText) {
        Statement s;
        s.line = token.line;
        s.text = next().text;
        block.push_back(std::move(s));
        continue;
      }
      if (token.kind == TokenKind::kPrintBegin) {
        Statement s;
        s.kind = StatementKind::kPrint;
        s.line = next().line;
        s.value = tuple_or_expression();
        expect(TokenKind::kPrintEnd, "'}}'");
        block.push_back(std::move(s));
        continue;
      }
      if (token.kind != TokenKind::kBegin) fail_here("unexpected token");
      if (peek(1).kind != TokenKind::kName) fail_here("expected a statement");
      for (const std::string_view end : ends)
        if (peek(1).text == end) return block;
      ++at_;
      statement(block);
    }
  }

  void end_tag(std::string_view name) {
    expect(TokenKind::kBegin, "'{%'");
    if (!take_name(name)) fail_here(fmt::format("expected {}, got '{}'", name, peek().text));
    expect(TokenKind::kEnd, "'%}'");
  }

  void statement(Block& block) {
    Statement s;
    s.line = peek().line;
    const std::string name = expect_name();
    if (name == "if") {
      s.kind = StatementKind::kIf;
      for (;;) {
        ExprPtr condition = expression();
        expect(TokenKind::kEnd, "'%}'");
        Block body = statements({"elif", "else", "endif"});
        s.branches.emplace_back(std::move(condition), std::move(body));
        expect(TokenKind::kBegin, "'{%'");
        if (take_name("elif")) continue;
        if (take_name("else")) {
          expect(TokenKind::kEnd, "'%}'");
          s.otherwise = statements({"endif"});
          ++at_;
        }
        if (!take_name("endif")) fail_here(fmt::format("expected endif, got '{}'", peek().text));
        break;
      }
      expect(TokenKind::kEnd, "'%}'");
    } else if (name == "for") {
      s.kind = StatementKind::kFor;
      s.targets = targets();
      if (!take_name("in")) fail_here(fmt::format("expected 'in', got '{}'", peek().text));
      s.value = or_expression();
      if (take_symbol(",")) fail_here("a loop over a tuple without brackets is not supported");
      if (take_name("if")) s.condition = expression();
      if (take_name("recursive")) fail_here("recursive loops are not supported");
      expect(TokenKind::kEnd, "'%}'");
      s.body = statements({"else", "endfor"});
      if (is_name("else", 1)) {
        at_ += 2;
        expect(TokenKind::kEnd, "'%}'");
        s.otherwise = statements({"endfor"});
      }
      end_tag("endfor");
    } else if (name == "set") {
      s.targets = targets();
      if (s.targets.size() == 1 && take_symbol(".")) s.attribute = expect_name();
      if (take_symbol("=")) {
        s.kind = StatementKind::kSet;
        s.value = tuple_or_expression();
        expect(TokenKind::kEnd, "'%}'");
      } else {
        s.kind = StatementKind::kSetBlock;
        while (take_symbol("|")) s.value = filter(std::move(s.value));
        expect(TokenKind::kEnd, "'%}'");
        s.body = statements({"endset"});
        end_tag("endset");
      }
    } else if (name == "macro") {
      s.kind = StatementKind::kMacro;
      s.text = expect_name();
      expect_symbol("(");
      while (!take_symbol(")")) {
        Parameter p;
        p.name = expect_name();
        if (take_symbol("=")) p.value = expression();
        s.parameters.push_back(std::move(p));
        if (!is_symbol(")")) expect_symbol(",");
      }
      expect(TokenKind::kEnd, "'%}'");
      s.body = statements({"endmacro"});
      end_tag("endmacro");
    } else if (name == "call") {
      s.kind = StatementKind::kCallBlock;
      if (is_symbol("(")) fail_here("parameters of call are not supported");
      s.value = expression();
      if (s.value->kind != ExprKind::kCall) fail_here("expected a call");
      expect(TokenKind::kEnd, "'%}'");
      s.body = statements({"endcall"});
      end_tag("endcall");
    } else if (name == "filter") {
      s.kind = StatementKind::kFilterBlock;
      s.value = filter(nullptr);
      while (take_symbol("|")) s.value = filter(std::move(s.value));
      expect(TokenKind::kEnd, "'%}'");
      s.body = statements({"endfilter"});
      end_tag("endfilter");
    } else if (name == "break" || name == "continue") {
      s.kind = name == "break" ? StatementKind::kBreak : StatementKind::kContinue;
      expect(TokenKind::kEnd, "'%}'");
    } else if (name == "generation") {
      // Marks what an assistant writes; it changes no text.
      s.kind = StatementKind::kBlock;
      expect(TokenKind::kEnd, "'%}'");
      s.body = statements({"endgeneration"});
      end_tag("endgeneration");
    } else {
      syntax_error(s.line, fmt::format("the statement {} is not supported", name));
    }
    block.push_back(std::move(s));
  }

  std::vector<std::string> targets() {
    std::vector<std::string> names;
    const bool in_brackets = take_symbol("(");
    do {
      if (in_brackets && is_symbol(")")) break;
      names.push_back(expect_name());
    } while (take_symbol(","));
    if (in_brackets) expect_symbol(")");
    return names;
  }

  static ExprPtr make(ExprKind kind, int line) {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->line = line;
    return e;
  }

  ExprPtr tuple_or_expression() {
    ExprPtr first = expression();
    if (!is_symbol(",")) return first;
    ExprPtr list = make(ExprKind::kList, first->line);
    list->name = "tuple";
    list->parts.push_back(std::move(first));
    while (take_symbol(","))
      if (!at_end()) list->parts.push_back(expression());
    return list;
  }
  bool at_end() const {
    const TokenKind kind = peek().kind;
    return kind == TokenKind::kEnd || kind == TokenKind::kPrintEnd || kind == TokenKind::kEof;
  }

  ExprPtr expression() {
    const Deeper deeper(*this);
    ExprPtr value = or_expression();
    while (is_name("if")) {
      ExprPtr e = make(ExprKind::kConditional, next().line);
      ExprPtr condition = or_expression();
      ExprPtr otherwise;
      if (take_name("else")) otherwise = expression();
      e->parts.push_back(std::move(value));
      e->parts.push_back(std::move(condition));
      e->parts.push_back(std::move(otherwise));
      value = std::move(e);
    }
    return value;
  }

  ExprPtr binary(ExprKind kind, int line, std::string name, ExprPtr a, ExprPtr b) {
    ExprPtr e = make(kind, line);
    e->name = std::move(name);
    e->parts.push_back(std::move(a));
    e->parts.push_back(std::move(b));
    return e;
  }

  ExprPtr or_expression() {
    ExprPtr left = and_expression();
    while (is_name("or")) {
      const int line = next().line;
      ExprPtr right = and_expression();
      left = binary(ExprKind::kOr, line, "or", std::move(left), std::move(right));
    }
    return left;
  }
  ExprPtr and_expression() {
    ExprPtr left = not_expression();
    while (is_name("and")) {
      const int line = next().line;
      ExprPtr right = not_expression();
      left = binary(ExprKind::kAnd, line, "and", std::move(left), std::move(right));
    }
    return left;
  }
  ExprPtr not_expression() {
    const Deeper deeper(*this);
    if (!is_name("not")) return comparison();
    ExprPtr e = make(ExprKind::kNot, next().line);
    e->parts.push_back(not_expression());
    return e;
  }
  ExprPtr comparison() {
    ExprPtr left = sum();
    ExprPtr chain;
    for (;;) {
      std::string op;
      if (is_name("in")) {
        op = "in";
        ++at_;
      } else if (is_name("not") && is_name("in", 1)) {
        op = "not in";
        at_ += 2;
      } else {
        for (const std::string_view s : {"==", "!=", "<=", ">=", "<", ">"})
          if (is_symbol(s)) op = s;
        if (op.empty()) return chain ? std::move(chain) : std::move(left);
        ++at_;
      }
      if (!chain) {
        chain = make(ExprKind::kCompare, left->line);
        chain->parts.push_back(std::move(left));
      }
      chain->operators.push_back(op);
      chain->parts.push_back(sum());
    }
  }
  ExprPtr sum() {
    ExprPtr left = concatenation();
    while (is_symbol("+") || is_symbol("-")) {
      const Token op = next();
      ExprPtr right = concatenation();
      left = binary(ExprKind::kBinary, op.line, op.text, std::move(left), std::move(right));
    }
    return left;
  }
  ExprPtr concatenation() {
    ExprPtr left = product();
    while (is_symbol("~")) {
      const Token op = next();
      ExprPtr right = product();
      left = binary(ExprKind::kBinary, op.line, op.text, std::move(left), std::move(right));
    }
    return left;
  }
  ExprPtr product() {
    ExprPtr left = unary();
    while (is_symbol("*") || is_symbol("/") || is_symbol("//") || is_symbol("%")) {
      const Token op = next();
      ExprPtr right = unary();
      left = binary(ExprKind::kBinary, op.line, op.text, std::move(left), std::move(right));
    }
    return left;
  }
  ExprPtr unary(bool with_filters = true) {
    const Deeper deeper(*this);
    ExprPtr value;
    if (is_symbol("-") || is_symbol("+")) {
      const Token op = next();
      value = make(op.text == "-" ? ExprKind::kNegate : ExprKind::kPositive, op.line);
      value->parts.push_back(unary(false));
    } else {
      value = postfix(primary());
    }
    if (is_symbol("**")) {
      const Token op = next();
      ExprPtr right = unary();
      value = binary(ExprKind::kBinary, op.line, op.text, std::move(value), std::move(right));
    }
    return with_filters ? filters(std::move(value)) : std::move(value);
  }

  ExprPtr primary() {
    const Token token = next();
    ExprPtr e = make(ExprKind::kLiteral, token.line);
    switch (token.kind) {
      case TokenKind::kName:
        if (token.text == "true" || token.text == "True")
          e->literal = Value(true);
        else if (token.text == "false" || token.text == "False")
          e->literal = Value(false);
        else if (token.text == "none" || token.text == "None")
          e->literal = Value(None{});
        else
          e->kind = ExprKind::kName, e->name = token.text;
        return e;
      case TokenKind::kString: {
        std::string text = token.text;
        while (peek().kind == TokenKind::kString) text += next().text;
        e->literal = Value(std::move(text));
        return e;
      }
      case TokenKind::kInteger: {
        int64_t value = 0;
        const char* end = token.text.data() + token.text.size();
        if (std::from_chars(token.text.data(), end, value).ec != std::errc())
          syntax_error(token.line, "an integer is too large");
        e->literal = Value(value);
        return e;
      }
      case TokenKind::kFloat:
        e->literal = Value(std::strtod(token.text.c_str(), nullptr));
        return e;
      default:
        break;
    }
    if (token.text == "(" && token.kind == TokenKind::kSymbol) {
      e->name = "tuple";
      if (take_symbol(")")) {
        e->kind = ExprKind::kList;
        return e;
      }
      ExprPtr inner = expression();
      if (is_symbol(",")) {
        e->kind = ExprKind::kList;
        e->parts.push_back(std::move(inner));
        while (take_symbol(","))
          if (!is_symbol(")")) e->parts.push_back(expression());
        inner = std::move(e);
      }
      expect_symbol(")");
      return inner;
    }
    if (token.text == "[" && token.kind == TokenKind::kSymbol) {
      e->kind = ExprKind::kList;
      while (!take_symbol("]")) {
        e->parts.push_back(expression());
        if (!is_symbol("]")) expect_symbol(",");
      }
      return e;
    }
    if (token.text == "{" && token.kind == TokenKind::kSymbol) {
      e->kind = ExprKind::kDict;
      while (!take_symbol("}")) {
        e->parts.push_back(expression());
        expect_symbol(":");
        e->parts.push_back(expression());
        if (!is_symbol("}")) expect_symbol(",");
      }
      return e;
    }
    syntax_error(token.line, fmt::format("expected an expression, got '{}'", token.text));
  }

  void call_arguments(std::vector<Argument>& out) {
    while (!take_symbol(")")) {
      if (is_symbol("*") || is_symbol("**")) fail_here("unpacked arguments are not supported");
      Argument a;
      if (peek().kind == TokenKind::kName && is_symbol("=", 1)) {
        a.name = next().text;
        ++at_;
      }
      a.value = expression();
      out.push_back(std::move(a));
      if (!is_symbol(")")) expect_symbol(",");
    }
  }

  ExprPtr postfix(ExprPtr value) {
    for (;;) {
      if (take_symbol(".")) {
        ExprPtr e;
        if (peek().kind == TokenKind::kInteger) {
          e = make(ExprKind::kItem, peek().line);
          ExprPtr index = primary();
          e->parts.push_back(std::move(value));
          e->parts.push_back(std::move(index));
        } else {
          e = make(ExprKind::kAttribute, peek().line);
          e->name = expect_name();
          e->parts.push_back(std::move(value));
        }
        value = std::move(e);
      } else if (take_symbol("[")) {
        value = subscript(std::move(value));
      } else if (is_symbol("(")) {
        ExprPtr e = make(ExprKind::kCall, next().line);
        e->parts.push_back(std::move(value));
        call_arguments(e->arguments);
        value = std::move(e);
      } else {
        return value;
      }
    }
  }

  ExprPtr subscript(ExprPtr value) {
    ExprPtr e = make(ExprKind::kItem, peek().line);
    e->parts.push_back(std::move(value));
    ExprPtr first;
    if (!is_symbol(":")) first = expression();
    if (!is_symbol(":")) {
      e->parts.push_back(std::move(first));
      expect_symbol("]");
      return e;
    }
    e->kind = ExprKind::kSlice;
    e->parts.push_back(std::move(first));
    for (int i = 0; i < 2; ++i) {
      ExprPtr part;
      if (take_symbol(":") && !is_symbol(":") && !is_symbol("]")) part = expression();
      e->parts.push_back(std::move(part));
    }
    expect_symbol("]");
    return e;
  }

  ExprPtr filter(ExprPtr value) {
    ExprPtr e = make(ExprKind::kFilter, peek().line);
    e->name = expect_name();
    e->parts.push_back(std::move(value));
    if (take_symbol("(")) call_arguments(e->arguments);
    return e;
  }

  // Filters, tests and what follows a call of one.
  ExprPtr filters(ExprPtr value) {
    for (;;) {
      if (take_symbol("|")) {
        value = filter(std::move(value));
      } else if (is_name("is")) {
        ExprPtr e = make(ExprKind::kTest, next().line);
        e->negated = take_name("not");
        e->name = expect_name();
        e->parts.push_back(std::move(value));
        if (take_symbol("(")) {
          call_arguments(e->arguments);
        } else if (begins_argument()) {
          Argument a;
          a.value = postfix(primary());
          e->arguments.push_back(std::move(a));
        }
        value = std::move(e);
      } else if (is_symbol("(") || is_symbol(".") || is_symbol("[")) {
        value = postfix(std::move(value));
      } else {
        return value;
      }
    }
  }
  // A test takes one argument without brackets: x is divisibleby 3.
  bool begins_argument() const {
    const Token& token = peek();
    if (token.kind == TokenKind::kName) {
      constexpr std::array<std::string_view, 6> kWords = {"else", "or", "and", "is", "if", "in"};
      return std::find(kWords.begin(), kWords.end(), token.text) == kWords.end() &&
             token.text != "not";
    }
    return token.kind == TokenKind::kString || token.kind == TokenKind::kInteger ||
           token.kind == TokenKind::kFloat || is_symbol("[") || is_symbol("{");
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Block parse(std::string_view source) {
  return Parser(lex(source)).run();
}

}  // namespace stow::text::jinja
