// The findings of `berth doctor` as text and as JSON; see doctor_text.h.
#include "doctor/doctor_text.h"

#include <algorithm>
#include <cstddef>
#include <fmt/format.h>
#include <vector>

#include "base/json.h"

namespace berth {
namespace {

constexpr std::size_t kLevelWidth = 9;   // "problem" and a gap
constexpr std::size_t kCheckWidth = 15;  // "pid_namespace" and a gap
constexpr std::size_t kIndent = kLevelWidth + kCheckWidth;
constexpr std::size_t kMinTwoColumnWidth =
    60;                                    // below this, two columns leave too little for the text
constexpr std::size_t kMaxShownAlike = 5;  // of one check; -v shows the rest

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

std::string summary(const Findings& findings, bool verbose) {
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
      format_count(passed, "check"), passed == 1 ? "is" : "are", verbose ? "" : " (-v shows them)");
}

// Replaces all but the first findings of each check by their number: a user can have thousands of
// tickets. `findings` are sorted by level.
Findings limit_findings(const Findings& findings) {
  const auto alike = [](const Finding& a, const Finding& b) {
    return a.level == b.level && a.check == b.check;
  };
  Findings shown;
  std::vector<std::size_t> left_out;  // for each of `shown`: how many like it follow
  for (const Finding& finding : findings) {
    const auto is_alike = [&](const Finding& one) { return alike(one, finding); };
    const auto count = std::count_if(shown.begin(), shown.end(), is_alike);
    if (static_cast<std::size_t>(count) < kMaxShownAlike) {
      shown.push_back(finding);
      left_out.push_back(0);
    } else {
      const auto last = std::find_if(shown.rbegin(), shown.rend(), is_alike);
      left_out[static_cast<std::size_t>(shown.rend() - last) - 1] += finding.count;
    }
  }
  Findings result;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    result.push_back(shown[i]);
    if (left_out[i] == 0) continue;
    result.push_back({shown[i].check, shown[i].level,
                      fmt::format("{} more like {} (-v shows them)", left_out[i],
                                  left_out[i] == 1 ? "this" : "these"),
                      ""});
  }
  return result;
}

}  // namespace

std::string doctor_text(const Findings& findings, const Terminal& terminal, bool verbose) {
  const bool narrow = terminal.width && *terminal.width < kMinTwoColumnWidth;
  const std::size_t indent = narrow ? kLevelWidth : kIndent;
  Findings shown = findings;
  std::stable_sort(shown.begin(), shown.end(),
                   [](const Finding& a, const Finding& b) { return a.level > b.level; });
  if (!verbose) {
    std::erase_if(shown, [](const Finding& one) { return one.level == Level::ok; });
    shown = limit_findings(shown);
  }
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
  return fmt::format("{}{}{}", out, out.empty() ? "" : "\n", summary(findings, verbose));
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
