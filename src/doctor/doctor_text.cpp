// The findings of `berth doctor` as text and as JSON; see doctor_text.h.
#include "doctor/doctor_text.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/json.h"

namespace berth {
namespace {

constexpr std::size_t kLevelWidth = 9;   // "problem" and a gap
constexpr std::size_t kCheckWidth = 15;  // "pid_namespace" and a gap
constexpr std::size_t kIndent = kLevelWidth + kCheckWidth;
constexpr std::size_t kMinTwoColumnWidth =
    60;  // below this, two columns leave too little for the text

Style style_of(Level level) {
  switch (level) {
    case Level::ok:
      return Style::good;
    case Level::note:
      return Style::warning;
    case Level::problem:
      return Style::bad;
  }
  return Style::plain;
}

std::string format_count(std::ptrdiff_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string summary(const Findings& findings, bool all) {
  const auto count = [&](Level level) {
    return std::count_if(findings.begin(), findings.end(),
                         [&](const Finding& one) { return one.level == level; });
  };
  const auto problems = count(Level::problem);
  const auto notes = count(Level::note);
  const auto passed = count(Level::ok);
  return fmt::format(
      "{}{}. {} {} ok{}.\n", problems == 0 ? "No problem" : format_count(problems, "problem"),
      notes == 0 ? "" : fmt::format(", {}", format_count(notes, "note")),
      format_count(passed, "check"), passed == 1 ? "is" : "are", all ? "" : " (--all shows them)");
}

}  // namespace

std::string doctor_text(const Findings& findings, const Terminal& terminal, bool all) {
  const bool narrow = terminal.width && *terminal.width < kMinTwoColumnWidth;
  const std::size_t indent = narrow ? kLevelWidth : kIndent;
  Findings shown = findings;
  std::stable_sort(shown.begin(), shown.end(),
                   [](const Finding& a, const Finding& b) { return a.level > b.level; });
  if (!all) std::erase_if(shown, [](const Finding& one) { return one.level == Level::ok; });
  std::string out;
  for (const Finding& finding : shown) {
    out +=
        terminal.paint(style_of(finding.level), align_left(to_string(finding.level), kLevelWidth));
    const std::string check = terminal.escape(finding.check);
    std::string text = wrap_text(
        terminal.escape(narrow ? fmt::format("{}: {}", check, finding.text) : finding.text),
        terminal.width, indent);
    // The first line follows the name of the check, instead of the indent.
    if (!narrow) out += align_left(check, kCheckWidth);
    out += text.substr(indent);
    out += '\n';
    if (finding.remedy.empty()) continue;
    out += wrap_text(terminal.escape(finding.remedy), terminal.width, indent + 2);
    out += '\n';
  }
  return fmt::format("{}{}{}", out, out.empty() ? "" : "\n", summary(findings, all));
}

std::string doctor_json(const Findings& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"check", finding.check},
                    {"level", to_string(finding.level)},
                    {"text", finding.text},
                    {"remedy", finding.remedy.empty() ? Json(nullptr) : Json(finding.remedy)}});
  }
  return to_ascii_json({{"findings", std::move(list)}}, 2) + "\n";
}

}  // namespace berth
