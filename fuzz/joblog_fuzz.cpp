// Fuzzes the joblog that `berth batch --resume` continues.
#include "batch/joblog.h"
#include "fuzz/fuzz.h"

namespace berth::batch {

void check_resume(std::string_view input) {
  const JoblogContent content = parse_joblog(input);
  check(content.is_joblog || content.lines.empty(), "only a joblog has lines");
  check(content.succeeded() <= content.lines.size(), "no more successes than lines");
  // An entry that is appended now decides about its key, whatever the entries before it say.
  std::string text(input);
  if (!text.empty() && !text.ends_with('\n')) text += '\n';
  const BatchLine line{1, 1, "true", content.lines.empty() ? "k" : content.lines.begin()->first};
  for (const int code : {0, 1}) {
    LineResult result;
    result.code = code;
    const JoblogContent after = parse_joblog(text + format_joblog_line(line, result));
    check(after.lines.contains(line.key), "a line that was appended is found");
    check(after.lines.at(line.key) == (code == 0), "the last end of a line counts");
    check(!after.finished, "a batch that goes on is not finished");
  }
}

}  // namespace berth::batch

namespace berth {

void fuzz(std::string_view input) {
  batch::check_resume(input);
}

}  // namespace berth
