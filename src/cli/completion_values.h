// The values that a shell offers for an option or argument: GPUs, ids, users, job types, hosts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace berth {

struct CompletionWord {
  std::string text;
  std::string description{};  // one line
};

enum class ValueForm : std::uint8_t {
  word,
  list,  // several words, separated by commas
  file,  // the shell completes file names
};

// Where the values of an option or argument come from.
struct CompletionSource {
  ValueForm form = ValueForm::word;
  std::vector<CompletionWord> (*values)() = nullptr;
};

// The commands, with their summaries.
std::vector<CompletionWord> list_commands();

// The source for the option "--user", or the argument "ID" of the command; an empty one if its
// values are not known. Calling `values` may read the harbour and the archive, and ask the driver.
// Problems are not reported: the list is empty then.
CompletionSource find_completion_source(std::string_view command, std::string_view option,
                                        std::string_view type);

// Without the words that a shell or a terminal could misread: those with control characters.
// Descriptions are made printable.
std::vector<CompletionWord> make_safe(std::vector<CompletionWord> words);

}  // namespace berth
