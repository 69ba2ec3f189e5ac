// The folder for the logs of a batch; opens files in it safely.
//
// Other users may be able to write to the parent of the folder, such as /tmp. So the folder must
// belong to the user of the batch, and no file is opened through a link or by waiting for the other
// end of a FIFO.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace berth::batch {

class LogFolder {
 public:
  // Opens the folder, or creates it. ErrorKind::io if it cannot be used.
  static Result<LogFolder> open(const std::string& path);

  const std::string& path() const { return path_; }

  // Opens the log of that name for appending. Creates a new file if `fresh`, if there is no file,
  // or if it is not an own file (see is_own_file()); the old file is then removed. On failure the
  // result is empty, and errno is set.
  UniqueFd open_log(const std::string& name, bool fresh) const;
  // The same for a log that exists: never creates or removes a file.
  UniqueFd reopen_log(const std::string& name) const;
  // Opens a file without following a link at its name, and without waiting for a FIFO. A file in
  // this folder is opened through the open folder, so also if the folder was moved. On failure the
  // result is empty, and errno is set.
  UniqueFd open_file(const std::string& path, int flags) const;
  void remove_if_empty(const std::string& name) const;

 private:
  LogFolder(std::string path, UniqueFd directory)
      : path_(std::move(path)), directory_(std::move(directory)) {}
  // Whether the path `parent` names this folder.
  bool is_this_folder(const std::string& parent) const;

  std::string path_;
  UniqueFd directory_;
};

// Whether the open file is a regular file that belongs to this user and has only one name. Another
// user may be able to make a hard link to a file of this user that they cannot write to, and so
// redirect the output into it.
bool is_own_file(int file);

}  // namespace berth::batch
