// The type of a job: what its runs have in common, so that one tells what the next will need.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace berth {

struct JobType {
  std::string name;
  std::string how;  // in words: how it was derived
};

// Of a command line: the program's name, and the script or module that it is given. Arguments do
// not count: they are what differs from run to run. Of `sh -c TEXT`, that of the first command in
// TEXT that does the work. `count` GPUs make another type than one. Looks whether files exist.
JobType derive_type(const std::vector<std::string>& command, unsigned count);

// Of a line of shell.
JobType derive_line_type(std::string_view line, unsigned count);

// Of a name that the user gave.
JobType named_type(std::string_view name, unsigned count);

}  // namespace berth
