// Inserts values into a command; see sweep.h.
#include "batch/sweep.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <utility>

#include "base/shell.h"
#include "base/text.h"
#include "batch/placeholders.h"

namespace berth::batch {
namespace {

constexpr std::size_t kMaxLines = 1'000'000;
constexpr std::string_view kList = ":::";
constexpr std::string_view kLinkedList = ":::+";

using Values = std::vector<std::string>;

bool is_separator(std::string_view word) {
  return word == kList || word == kLinkedList || word == "::::" || word == "::::+";
}

// A word that users write for a placeholder: a name, or a placeholder of GNU parallel. Other texts
// in braces, such as {a,b}, are left to the shell.
bool looks_like_placeholder(std::string_view name) {
  for (const std::string_view other : {".", "/", "//", "/.", "%"}) {
    if (name == other) return true;
  }
  const auto is_letter = [](char letter) {
    return letter == '_' || (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
  };
  const auto is_digit = [](char letter) { return letter >= '0' && letter <= '9'; };
  return !name.empty() && is_letter(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char letter) { return is_letter(letter) || is_digit(letter); });
}

std::string column_names(const Values& columns) {
  constexpr std::size_t kMaxWidth = 200;
  return truncate_text(printable(join_text(columns, ", ")), kMaxWidth);
}

// What the values of a command come from, for its placeholders and messages.
struct ValueSource {
  std::size_t count;                // values for each line
  const Values* columns = nullptr;  // their names, if they come from a CSV file
  std::string_view file{};          // its name
  const char* noun() const { return columns ? "column" : "list"; }
};

// A command whose placeholders are resolved.
class CommandTemplate {
 public:
  static Result<CommandTemplate> parse(std::string text, const ValueSource& source) {
    CommandTemplate result(std::move(text));
    const auto found = find_placeholders(result.text_);
    const auto unnamed =
        static_cast<std::size_t>(std::count_if(found.begin(), found.end(), is_unnamed));
    if (unnamed > 1 && source.count > 1 && unnamed != source.count) {
      return usage_failure(
          fmt::format("the command has {} {{}} for {} {}s; write {{1}} for the "
                      "first {}, {{2}} for the second",
                      unnamed, source.count, source.noun(), source.noun()));
    }
    std::size_t next_unnamed = 0;
    for (const Placeholder& one : found) {
      Slot slot{
          one.begin, one.name.size() + 2, one.context, std::string(one.cause), one.follows_variable,
          Slot::kAll};
      if (is_unnamed(one)) {
        if (source.count == 1) slot.value = 0;
        if (source.count > 1 && unnamed > 1) slot.value = next_unnamed++;
      } else if (const auto value = TRY(find_value(one.name, source))) {
        slot.value = *value;
      } else {
        continue;
      }
      result.slots_.push_back(slot);
    }
    return result;
  }

  // Whether a value is inserted; {#} alone is not one.
  bool uses_values() const {
    return std::any_of(slots_.begin(), slots_.end(),
                       [](const Slot& slot) { return slot.value != Slot::kNumber; });
  }

  // The command of a line. ErrorKind::usage: a value cannot stand where its placeholder stands.
  Result<std::string> fill(const Values& values, std::size_t number) const {
    std::string command;
    std::size_t end = 0;
    for (const Slot& slot : slots_) {
      command.append(text_, end, slot.begin - end);
      end = slot.end();
      if (slot.value == Slot::kNumber) {
        TRY(append_value(command, slot, fmt::format("{}", number)));
      } else if (slot.value == Slot::kAll) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          if (i > 0) command += ' ';
          TRY(append_value(command, slot, values[i]));
        }
      } else {
        TRY(append_value(command, slot, values[slot.value]));
      }
    }
    return command.append(text_, end);
  }

 private:
  // A placeholder that values replace.
  struct Slot {
    static constexpr std::size_t kAll = SIZE_MAX;         // all values, separated by blanks
    static constexpr std::size_t kNumber = SIZE_MAX - 1;  // the number of the line
    std::size_t begin;
    std::size_t length;
    PlaceholderContext context;
    std::string cause;
    bool follows_variable;
    std::size_t value;  // an index of the values, kAll or kNumber
    std::size_t end() const { return begin + length; }
  };

  explicit CommandTemplate(std::string text) : text_(std::move(text)) {}

  static bool is_unnamed(const Placeholder& one) { return one.name.empty(); }

  // The index of the value with this name; nullopt: it is other text of the command.
  static Result<std::optional<std::size_t>> find_value(std::string_view name,
                                                       const ValueSource& source) {
    if (source.columns) {
      const auto found = std::find(source.columns->begin(), source.columns->end(), name);
      if (found != source.columns->end())
        return static_cast<std::size_t>(found - source.columns->begin());
    }
    if (name == "#") return Slot::kNumber;
    if (name.find_first_not_of("0123456789") == std::string_view::npos) {
      constexpr std::size_t kMaxShownDigits = 20;
      const auto number = parse_integer<std::size_t>(name).value_or(0);
      if (number >= 1 && number <= source.count) return number - 1;
      const std::string known =
          source.count == 1
              ? fmt::format("the only {} is {{1}}", source.noun())
              : fmt::format("the {}s are {{1}} to {{{}}}", source.noun(), source.count);
      return usage_failure(fmt::format("there is no {} {{{}}}; {}", source.noun(),
                                       truncate_text(name, kMaxShownDigits), known));
    }
    if (!looks_like_placeholder(name)) return std::nullopt;
    if (source.columns) {
      return usage_failure(fmt::format("{} has no column {}; its columns are {}",
                                       source_name(source.file), in_quotes(name),
                                       column_names(*source.columns)));
    }
    return usage_failure(fmt::format(
        "{} is not a placeholder for ::: lists; write {{}}, or {{1}} for the first list",
        in_quotes(fmt::format("{{{}}}", name))));
  }

  Result<void> append_value(std::string& command, const Slot& slot,
                            const std::string& value) const {
    if (slot.context == PlaceholderContext::plain) {
      command += needs_quotes(command, slot, value) ? single_quote(value) : value;
      return {};
    }
    if (is_plain_value(value) && !slot.follows_variable) {
      command += value;
      return {};
    }
    return fail(ErrorKind::usage, fmt::format("the value {} cannot stand {}", in_quotes(value),
                                              describe_refusal(slot)));
  }

  // Whether the shell would read the value in another way than as a part of an argument.
  bool needs_quotes(std::string_view before, const Slot& slot, std::string_view value) const {
    if (value.empty() || !is_plain_value(value) || slot.follows_variable) return true;
    const std::string_view after = std::string_view(text_).substr(slot.end());
    const bool begins_plainly =
        before.empty() || is_plain_value(before.substr(before.size() - 1)) ||
        std::string_view(" \t\n'\"").find(before.back()) != std::string_view::npos;
    // "<" and ">" would turn a number into a file descriptor.
    const bool ends_plainly =
        after.empty() || is_plain_value(after.substr(0, 1)) ||
        std::string_view(" \t\n'\";|&){").find(after.front()) != std::string_view::npos;
    return !begins_plainly || !ends_plainly;
  }

  // Where the value cannot stand, and the remedy.
  std::string describe_refusal(const Slot& slot) const {
    const std::string name = printable(text_.substr(slot.begin, slot.length));
    if (slot.follows_variable) {
      return fmt::format(
          "directly behind the name of a variable; write ${{NAME}}{} instead of "
          "$NAME{}",
          name, name);
    }
    if (slot.context == PlaceholderContext::comment)
      return fmt::format("in a comment; remove {} from the comment", name);
    if (slot.context == PlaceholderContext::not_followed) {
      return fmt::format(
          "behind {}, where berth cannot quote it; put {} before that, or the "
          "command into a script with {} as its argument",
          in_quotes(slot.cause), name, name);
    }
    return fmt::format("inside quotes; remove the quotes around {}, berth quotes each value itself",
                       name);
  }

  std::string text_;
  std::vector<Slot> slots_;
};

struct ValueList {
  Values values{};
  bool is_linked = false;  // its values belong to those of the list before it, one by one
};

// The lists of `words`, which begin with a separator.
Result<std::vector<ValueList>> parse_lists(std::vector<std::string>::const_iterator word,
                                           std::vector<std::string>::const_iterator end) {
  std::vector<ValueList> lists;
  while (word != end) {
    if (*word != kList && *word != kLinkedList) {
      return usage_failure(
          fmt::format("{} (values from a file) is not supported; write ::: "
                      "$(cat FILE), or use --csv FILE",
                      *word));
    }
    const bool is_linked = *word == kLinkedList;
    const auto next = std::find_if(word + 1, end, is_separator);
    lists.push_back({Values(word + 1, next), is_linked});
    const Values& values = lists.back().values;
    if (values.empty()) {
      return usage_failure(fmt::format("list {} (behind {}) has no values; write at least one",
                                       lists.size(), *word));
    }
    if (is_linked && lists.size() == 1) {
      return usage_failure("the first list cannot be linked to another; begin it with :::");
    }
    if (is_linked && values.size() != lists[lists.size() - 2].values.size()) {
      return usage_failure(fmt::format(
          "lists that :::+ links need the same number of values; list "
          "{} has {}, list {} has {}",
          lists.size() - 1, lists[lists.size() - 2].values.size(), lists.size(), values.size()));
    }
    word = next;
  }
  return lists;
}

// All combinations of the lists; the last list changes fastest.
Result<std::vector<Values>> combine_lists(const std::vector<ValueList>& lists) {
  std::vector<Values> rows(1);
  for (auto list = lists.begin(); list != lists.end();) {
    const auto group_end =
        std::find_if(list + 1, lists.end(), [](const ValueList& one) { return !one.is_linked; });
    const std::size_t count = list->values.size();
    if (count > kMaxLines / rows.size()) {
      return usage_failure(
          fmt::format("the lists have more than {} combinations; write fewer values", kMaxLines));
    }
    std::vector<Values> longer;
    longer.reserve(rows.size() * count);
    for (const Values& row : rows) {
      for (std::size_t i = 0; i < count; ++i) {
        longer.push_back(row);
        for (auto one = list; one != group_end; ++one) longer.back().push_back(one->values[i]);
      }
    }
    rows = std::move(longer);
    list = group_end;
  }
  return rows;
}

}  // namespace

bool has_lists(const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), is_separator);
}

Result<std::vector<BatchLine>> make_list_lines(const std::vector<std::string>& words) {
  const auto separator = std::find_if(words.begin(), words.end(), is_separator);
  const std::string text = join_text(Values(words.begin(), separator), " ");
  if (text.find_first_not_of(" \t") == std::string::npos) {
    return usage_failure(
        "there is no command before :::; write berth batch -- 'COMMAND {}' ::: "
        "VALUES");
  }
  const auto lists = TRY(parse_lists(separator, words.end()));
  auto command = TRY(CommandTemplate::parse(text, {lists.size()}));
  if (!command.uses_values()) command = TRY(CommandTemplate::parse(text + " {}", {lists.size()}));
  LineCollector lines;
  for (const Values& row : TRY(combine_lists(lists))) {
    auto filled = command.fill(row, lines.count() + 1);
    if (!filled) return usage_failure(filled.error().message);
    if (const char* problem = lines.add(*filled, 0))
      return usage_failure(fmt::format("{} {}", in_quotes(*filled), problem));
  }
  return lines.take_lines();
}

Result<std::vector<BatchLine>> make_table_lines(const std::vector<std::string>& command,
                                                const CsvTable& table, std::string_view source) {
  const auto parsed = TRY(CommandTemplate::parse(join_text(command, " "),
                                                 {table.columns.size(), &table.columns, source}));
  if (!parsed.uses_values()) {
    return usage_failure(
        fmt::format("the command uses no column of {}; write {{NAME}} for the "
                    "value of a column: {}",
                    source_name(source), column_names(table.columns)));
  }
  LineCollector lines;
  for (const CsvRow& row : table.rows) {
    const auto failed = [&](std::string_view problem) {
      return usage_failure(fmt::format("line {} of {}{}", row.line, source_name(source), problem));
    };
    auto filled = parsed.fill(row.values, lines.count() + 1);
    if (!filled) return failed(": " + filled.error().message);
    if (const char* problem = lines.add(*filled, row.line))
      return failed(fmt::format(" {}", problem));
  }
  return lines.take_lines();
}

}  // namespace berth::batch
