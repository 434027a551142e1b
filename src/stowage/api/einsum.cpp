// einsum: letters resolved, diagonals taken, single sums, then products of two at a time.
#include <algorithm>
#include <map>
#include <set>

#include "stowage/api/linalg.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/reduce.h"

namespace stow {
namespace {

/// An operand and a letter for each of its axes.
struct Term {
  Array array;
  std::string letters;
};

// Letters that stand for the axes of "...": 'A' and on are free after letters are checked.
constexpr char kEllipsisFirst = '\x01';

[[noreturn]] void malformed(std::string_view spec, const std::string& why) {
  trace_error_here("[einsum] \"{}\": {}", spec, why);
}

struct Parsed {
  std::vector<std::string> inputs;
  std::string output;
};

Parsed split_spec(std::string_view spec, size_t n_operands) {
  std::string text;
  for (char c : spec)
    if (c != ' ') text += c;
  Parsed parsed;
  const size_t arrow = text.find("->");
  std::string inputs = text.substr(0, arrow);
  for (size_t start = 0;;) {
    const size_t comma = inputs.find(',', start);
    parsed.inputs.push_back(inputs.substr(start, comma - start));
    if (comma == std::string::npos) break;
    start = comma + 1;
  }
  if (parsed.inputs.size() != n_operands)
    malformed(spec, fmt::format("expected a term for each operand, got {} for {}",
                                parsed.inputs.size(), n_operands));
  if (arrow != std::string::npos) {
    parsed.output = text.substr(arrow + 2);
    return parsed;
  }
  std::map<char, int> counts;
  for (const std::string& term : parsed.inputs)
    for (char c : term) ++counts[c];
  if (counts.count('.')) parsed.output = "...";
  for (const auto& [c, n] : counts)
    if (n == 1 && c != '.') parsed.output += c;
  return parsed;
}

// Replaces "..." by `n` letters of its own, right-aligned so that they broadcast.
std::string expand(std::string_view spec, const std::string& term, int n, int most) {
  std::string letters;
  for (size_t i = 0; i < term.size(); ++i) {
    if (term[i] == '.') {
      if (term.compare(i, 3, "...") != 0) malformed(spec, "a single dot");
      for (int k = most - n; k < most; ++k) letters += static_cast<char>(kEllipsisFirst + k);
      i += 2;
    } else if (std::isalpha(static_cast<unsigned char>(term[i]))) {
      letters += term[i];
    } else {
      malformed(spec, fmt::format("expected letters, got '{}'", term[i]));
    }
  }
  return letters;
}

bool has(const std::string& letters, char c) {
  return letters.find(c) != std::string::npos;
}

// The sum over `axes`. For bools, true if any is true. Other sums are in x's own dtype: those of
// narrow integers, which are wider, wrap as their products do.
Array total(const Array& x, const Axes& axes) {
  return x.dtype() == DType::kBool ? any(x, axes) : convert_to(sum(x, axes), x.dtype());
}

// Letters that a term has twice become one axis: the diagonal.
Term take_diagonals(Term t) {
  for (size_t i = 0; i < t.letters.size(); ++i) {
    const size_t j = t.letters.find(t.letters[i], i + 1);
    if (j == std::string::npos) continue;
    const Shape& shape = t.array.shape();
    const auto ii = static_cast<int>(i), jj = static_cast<int>(j);
    const Array on = iota(shape, ii) == iota(shape, jj);
    t.array = total(where(on, t.array, zeros_like(t.array)), static_cast<int64_t>(j));
    t.letters.erase(j, 1);
    --i;
  }
  return t;
}

// Sums the axes whose letter nobody else wants.
Term sum_alone(Term t, const std::set<char>& wanted) {
  Dims axes;
  std::string kept;
  for (size_t i = 0; i < t.letters.size(); ++i) {
    if (wanted.count(t.letters[i]))
      kept += t.letters[i];
    else
      axes.push_back(static_cast<int64_t>(i));
  }
  if (!axes.empty()) t = {total(t.array, axes), kept};
  return t;
}

Term product(const Term& a, const Term& b, const std::set<char>& wanted) {
  Dims ac, bc, ab, bb;
  std::string batch, free_a, free_b;
  for (size_t i = 0; i < a.letters.size(); ++i) {
    const char c = a.letters[i];
    const size_t j = b.letters.find(c);
    if (j == std::string::npos) {
      free_a += c;
    } else if (wanted.count(c)) {
      ab.push_back(static_cast<int64_t>(i));
      bb.push_back(static_cast<int64_t>(j));
      batch += c;
    } else {
      ac.push_back(static_cast<int64_t>(i));
      bc.push_back(static_cast<int64_t>(j));
    }
  }
  for (char c : b.letters)
    if (!has(a.letters, c)) free_b += c;
  return {dot_general(a.array, b.array, ac, bc, ab, bb), batch + free_a + free_b};
}

// Axes of extent 1 whose letter is longer elsewhere broadcast: drop them.
Term drop_ones(Term t, const std::map<char, int64_t>& extents) {
  Dims axes;
  std::string kept;
  for (size_t i = 0; i < t.letters.size(); ++i) {
    const bool one = t.array.shape()[static_cast<int>(i)] == 1 && extents.at(t.letters[i]) != 1;
    if (one)
      axes.push_back(static_cast<int64_t>(i));
    else
      kept += t.letters[i];
  }
  if (!axes.empty()) t = {squeeze(t.array, axes), kept};
  return t;
}

}  // namespace

Array einsum(std::string_view spec, const std::vector<Array>& operands, SourceLocation at) {
  const CallSiteScope site(at);
  Parsed parsed = split_spec(spec, operands.size());
  std::vector<int> covered;  // how many axes "..." covers in each term
  int most = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string& term = parsed.inputs[i];
    const auto named = static_cast<int>(
        std::count_if(term.begin(), term.end(), [](unsigned char c) { return c != '.'; }));
    covered.push_back(operands[i].rank() - named);
    if (has(term, '.') ? covered[i] < 0 : covered[i] != 0)
      malformed(spec,
                fmt::format("term \"{}\" does not fit {}", term, to_string(operands[i].type())));
    most = std::max(most, covered[i]);
  }
  WeakDType dtype = Operand(operands.at(0)).dtype();
  for (const Array& x : operands) dtype = promote(dtype, Operand(x).dtype());

  std::vector<Term> terms;
  std::map<char, int64_t> extents;
  for (size_t i = 0; i < operands.size(); ++i) {
    terms.push_back(
        {to_array(operands[i], dtype), expand(spec, parsed.inputs[i], covered[i], most)});
    for (size_t k = 0; k < terms[i].letters.size(); ++k) {
      const char c = terms[i].letters[k];
      const int64_t extent = operands[i].shape()[static_cast<int>(k)];
      const auto [it, is_new] = extents.emplace(c, extent);
      if (is_new || it->second == extent || extent == 1) continue;
      if (it->second != 1)
        malformed(spec,
                  fmt::format("'{}' has extents {} and {}", c < 'A' ? '.' : c, it->second, extent));
      it->second = extent;
    }
  }
  const std::string output = expand(spec, parsed.output, most, most);
  for (size_t i = 0; i < output.size(); ++i) {
    if (output.find(output[i], i + 1) != std::string::npos)
      malformed(spec, fmt::format("'{}' is in the result twice", output[i]));
    if (!extents.count(output[i]))
      malformed(spec, fmt::format("'{}' of the result is in no term", output[i]));
  }

  for (Term& t : terms) t = take_diagonals(drop_ones(std::move(t), extents));
  auto wanted_beside = [&](size_t i, size_t j) {
    std::set<char> wanted(output.begin(), output.end());
    for (size_t k = 0; k < terms.size(); ++k)
      if (k != i && k != j) wanted.insert(terms[k].letters.begin(), terms[k].letters.end());
    return wanted;
  };
  for (size_t i = 0; i < terms.size(); ++i) terms[i] = sum_alone(terms[i], wanted_beside(i, i));
  while (terms.size() > 1) {
    // The pair whose product is smallest.
    size_t best_i = 0, best_j = 1;
    double least = -1;
    for (size_t i = 0; i < terms.size(); ++i)
      for (size_t j = i + 1; j < terms.size(); ++j) {
        const std::set<char> wanted = wanted_beside(i, j);
        std::set<char> letters(terms[i].letters.begin(), terms[i].letters.end());
        letters.insert(terms[j].letters.begin(), terms[j].letters.end());
        double size = 1;
        for (char c : letters)
          if (wanted.count(c)) size *= static_cast<double>(extents.at(c));
        if (least < 0 || size < least) least = size, best_i = i, best_j = j;
      }
    const std::set<char> wanted = wanted_beside(best_i, best_j);
    terms[best_i] = sum_alone(product(terms[best_i], terms[best_j], wanted), wanted);
    terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(best_j));
  }
  // Letters that only broadcast away are put back.
  Term& t = terms[0];
  Dims order, missing;
  for (size_t i = 0; i < output.size(); ++i) {
    const size_t k = t.letters.find(output[i]);
    if (k == std::string::npos)
      missing.push_back(static_cast<int64_t>(i));
    else
      order.push_back(static_cast<int64_t>(k));
  }
  Array result = transpose(t.array, order);
  return missing.empty() ? result : expand_dims(result, missing);
}

}  // namespace stow
