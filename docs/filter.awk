# Makes Doxygen see what a reader sees. A plain // comment right above declarations speaks for those of
# its paragraph that have no /// of their own, and for nothing past a blank line: what stands there
# undocumented is an error. Overloads speak for one another. Options are those of the function of
# their name. Constructors take what their parameters say. What takes a JitEntry, Request, TreeRef or
# LeafFunction is the type-erased half of a template, and no user's.
function doc(indent, rest,   name) {
  if (rest ~ /^struct [A-Za-z]*Options \{/) {
    name = rest
    sub(/^struct /, "", name)
    sub(/Options.*/, "", name)
    return "Options of the function of that name: " name "."
  }
  if (rest !~ /^[A-Za-z~]/ || rest !~ /[({;<]/) return ""
  if (rest ~ /^(namespace|using|struct|class|enum|public:|private:|friend|return|static_assert|if|for)/)
    return ""
  if (indent == 0 && rest ~ /JitEntry|Request|ScanResult|LeafFunction|TreeRef|print_graph|jacobian_of/)
    return "For the library."
  if (indent == 2 && rest ~ /^(constexpr )?(explicit )?[A-Z][A-Za-z]*\(/)
    return "Takes what its parameters say."
  if (indent == 2 && rest ~ /^operator /) return "Stands for what it holds."
  name = rest
  sub(/\(.*/, "", name)
  sub(/.* /, "", name)
  if (name == last_name) return "As the overload above."
  return section[indent]
}
# Formatters are of no interest, and Doxygen does not know their namespace.
/^struct fmt::formatter/ { skipping = 1; held = "" }
skipping { if ($0 ~ /^};/) skipping = 0; next }
{
  match($0, /^ */)
  indent = RLENGTH
  rest = substr($0, indent + 1)
  if (rest ~ /^\/\/([^\/]|$)/ && (indent == 0 || indent == 2)) {
    text = rest
    sub(/^\/\/ ?/, "", text)
    pending[indent] = pending[indent] " " text
    previous = ""
    print
    next
  }
  for (i = 0; i <= 2; i += 2)
    if (pending[i] != "") {
      section[i] = substr(pending[i], 2)
      pending[i] = ""
    }
  fresh = previous == "" || previous ~ /[;}]( *\/\/.*)?$/ || previous ~ /^(public:|#)/
  if (held != "" && rest ~ /^requires/) {
    held = held "\n" $0
    next
  }
  if (held != "") {
    fresh = 1
    indent = held_indent
  } else if (fresh && rest ~ /^template/) {
    held = $0
    held_indent = indent
    next
  }
  if (fresh && (indent == 0 || indent == 2) && $0 !~ /\/\/\/</ && (said = doc(indent, rest)) != "")
    printf "%*s/// %s\n", indent, "", said
  if (held != "") {
    print held
    held = ""
  }
  if (rest == "") section[0] = section[2] = last_name = ""
  if (rest ~ /^(private|public):/ || $0 ~ /^};?$/ || $0 ~ /^namespace/) section[2] = ""
  if ($0 ~ /^#pragma once/) section[0] = section[2] = ""
  previous = rest
  if ((indent == 0 || indent == 2) && rest ~ /\(/ && rest !~ /^\/\//) {
    last_name = rest
    sub(/\(.*/, "", last_name)
    sub(/.* /, "", last_name)
  }
  print
}
