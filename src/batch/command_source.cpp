// Reads the commands of a batch; see command_source.h.
#include "batch/command_source.h"

#include <algorithm>
#include <fmt/format.h>
#include <string_view>
#include <sys/stat.h>

#include "base/shell.h"
#include "base/text.h"
#include "batch/csv.h"
#include "batch/sweep.h"

namespace berth::batch {
namespace {

tl::unexpected<Error> usage_failure(std::string_view problem) {
  return fail(ErrorKind::usage, fmt::format("batch: {}", problem));
}

// Whether the file is a program, and not a list of commands, which may begin with "#!/bin/sh".
bool is_program(std::string_view file, std::string_view text) {
  if (file.ends_with(".py") || text.starts_with("\177ELF")) return true;
  const std::string_view first_line = text.substr(0, text.find('\n'));
  return first_line.starts_with("#!") && !first_line.ends_with("sh");
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
    return usage_failure(
        fmt::format("{} is a program, not a list of commands; did you mean: berth "
                    "run -- {}{}? (as a list: berth batch - < {})",
                    in_quotes(file), file.ends_with(".py") ? "python " : "", shell_quote(file),
                    shell_quote(file)));
  }
  return parse_lines(text, file);
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
