// Reads the commands of a batch; see command_source.h.
#include "batch/command_source.h"

#include <algorithm>
#include <fmt/format.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include "base/shell.h"
#include "base/text.h"
#include "batch/csv.h"
#include "batch/sweep.h"

namespace berth::batch {
namespace {

// Takes the first word from the front of `text`.
std::string_view take_word(std::string_view& text) {
  constexpr std::string_view kBlanks = " \t\r";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(word.size());
  return word;
}

// The name of the program that runs a script: "bash" for "#!/bin/bash -e" and for "#!/usr/bin/env
// -S bash -e". Empty if the text does not begin with such a line.
std::string_view find_interpreter(std::string_view text) {
  if (!text.starts_with("#!")) return "";
  std::string_view line = text.substr(2, text.find('\n') - 2);
  const auto take_name = [&line] {
    const std::string_view path = take_word(line);
    return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  };
  std::string_view name = take_name();
  if (name != "env") return name;
  do {  // the flags and variables of env
    name = take_name();
  } while (name.starts_with('-') || name.find('=') != std::string_view::npos);
  return name;
}

// Whether the file is a program, and not a list of commands, which may begin with "#!/bin/bash -e".
// The script of a Slurm job is a program, too: it has directives behind that line.
bool is_program(std::string_view file, std::string_view text) {
  if (file.ends_with(".py") || text.starts_with("\177ELF")) return true;
  if (!text.starts_with("#!")) return false;
  return !find_interpreter(text).ends_with("sh") ||
         text.find("\n#SBATCH ") != std::string_view::npos;
}

// How a shell starts the program in this file.
std::string program_command(const std::string& file, std::string_view text) {
  if (::access(file.c_str(), X_OK) == 0) {
    const bool has_folder = file.find('/') != std::string::npos;
    return shell_quote(has_folder ? file : "./" + file);
  }
  const std::string_view interpreter =
      file.ends_with(".py") ? std::string_view("python") : find_interpreter(text);
  return fmt::format("{}{}{}", interpreter, interpreter.empty() ? "" : " ", shell_quote(file));
}

// Whether the line is only a part of a loop, a condition or a function of a shell. Alone it is
// always a syntax error.
bool is_part_of_block(std::string_view line) {
  std::string_view rest = line;
  const std::string_view first = take_word(rest);
  const std::string_view first_word = first.substr(0, first.find(';'));
  for (const std::string_view word : {"do", "done", "then", "else", "elif", "fi", "esac", "}"}) {
    if (first_word == word) return true;
  }
  if (first == "{") return line.find('}') == std::string_view::npos;
  const auto end = line.find_last_not_of(" \t\r") + 1;
  line = line.substr(0, end);
  const std::string_view last = line.substr(line.find_last_of(" \t;") + 1);
  if (first == "if") return last == "then";
  if (first == "case") return last == "in";
  if (first == "for" || first == "while" || first == "until") return last == "do";
  return last.ends_with('{') && (first == "function" || line.find("()") != std::string_view::npos);
}

// The script would be cut into its lines.
Result<void> refuse_script(const std::string& file, std::string_view text,
                           const std::vector<BatchLine>& lines) {
  const auto found = std::find_if(lines.begin(), lines.end(), [](const BatchLine& line) {
    return is_part_of_block(line.command);
  });
  if (found == lines.end()) return {};
  const std::string_view interpreter = find_interpreter(text);
  return usage_failure(fmt::format(
      "line {} of {} is only a part of a block of a shell script: {}; each line is run alone. Run "
      "the script with: berth run -- {} {} (if it is a list: berth batch - < {})",
      found->line, source_name(file), in_quotes(truncate_text(found->command, 60)),
      interpreter.empty() ? "sh" : interpreter, shell_quote(file), shell_quote(file)));
}

bool is_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

Result<void> check_parts(const CommandSource& source) {
  const auto& [arguments, csv, words] = source;
  if (has_lists(arguments)) {
    return usage_failure(
        "the command of a sweep follows --, as in berth batch -- 'python train.py {}' ::: 1 2");
  }
  if (!csv.empty() && (words.empty() || !arguments.empty())) {
    return usage_failure(
        "with --csv the command follows --, as in berth batch --csv FILE -- 'python train.py "
        "{lr}'");
  }
  if (!csv.empty() && has_lists(words))
    return usage_failure("--csv and ::: contradict each other; use only one of them");
  if (arguments.size() > 1 && std::all_of(arguments.begin(), arguments.end(), is_file)) {
    return usage_failure(
        fmt::format("unexpected argument {}; for several files write cat {} | "
                    "berth batch -",
                    in_quotes(arguments[1]), printable(join_text(arguments, " ", shell_quote))));
  }
  if (arguments.size() > 1) {
    return usage_failure(
        fmt::format("unexpected argument {}; for one command write berth run -- "
                    "{}, for several berth batch -- 'COMMAND' 'COMMAND'",
                    in_quotes(arguments[1]), printable(join_text(arguments, " ", shell_quote))));
  }
  if (!arguments.empty() && !words.empty())
    return usage_failure("the commands come from a file or follow --, not both; omit one of them");
  if (arguments.empty() && words.empty()) {
    return usage_failure("no commands; name a file that has one command per line, or - for stdin");
  }
  return {};
}

Result<std::vector<BatchLine>> read_file(const std::string& file) {
  const std::string text = TRY(read_source(file, "one command per line"));
  if (file != "-" && is_program(file, text)) {
    return usage_failure(fmt::format(
        "{} is a program, not a list of commands; run it with: berth run -- {} (if it is a list: "
        "berth batch - < {})",
        in_quotes(file), program_command(file, text), shell_quote(file)));
  }
  auto lines = TRY(parse_lines(text, file));
  if (file != "-") TRY(refuse_script(file, text, lines));
  return lines;
}

}  // namespace

std::string CommandSource::named_file() const {
  const std::string& file = csv.empty() && !arguments.empty() ? arguments.front() : csv;
  return file == "-" ? "" : file;
}

bool CommandSource::is_sweep() const {
  return !csv.empty() || has_lists(words);
}

Result<std::vector<BatchLine>> read_commands(const CommandSource& source) {
  TRY(check_parts(source));
  if (!source.csv.empty()) {
    const std::string text = TRY(read_source(source.csv, "the names of columns, and rows"));
    return make_table_lines(source.words, TRY(parse_csv(text, source.csv)), source.csv);
  }
  if (!source.arguments.empty()) return read_file(source.arguments.front());
  if (has_lists(source.words)) return make_list_lines(source.words);
  return make_lines(source.words);
}

}  // namespace berth::batch
