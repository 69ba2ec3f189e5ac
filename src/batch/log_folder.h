// The folder for the logs of a batch, and the safe opening of files in it.
//
// The folder may stand where other users can write, such as /tmp. So it must belong to the user of
// the batch, and nothing in it is opened through a link, or waits for the other end of a FIFO.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace berth::batch {

class LogFolder {
 public:
  // Opens the folder, and makes it if there is none. ErrorKind::io if it cannot be used.
  static Result<LogFolder> open(const std::string& path);

  const std::string& path() const { return path_; }

  // The log of that name, to append to. A new one if `fresh`, if there is none, or if what is there
  // is not a regular file of this user with one name; what was there is removed then. Empty, with
  // errno, if that fails.
  UniqueFd open_log(const std::string& name, bool fresh) const;
  // The same, of a log that must be there.
  UniqueFd reopen_log(const std::string& name) const;
  // Opens a file without following a link at its name, and without waiting for a FIFO. A file that
  // lies in this folder is opened through it, also if the folder has been moved meanwhile. Empty,
  // with errno, if that fails.
  UniqueFd open_file(const std::string& path, int flags) const;
  void remove_if_empty(const std::string& name) const;

 private:
  LogFolder(std::string path, UniqueFd directory)
      : path_(std::move(path)), directory_(std::move(directory)) {}
  // Whether that path names this folder.
  bool is_this_folder(const std::string& parent) const;

  std::string path_;
  UniqueFd directory_;
};

// Is the open file a regular one that belongs to this user and has no second name? Another user can
// give a second name (a hard link) to a file that they cannot write to.
bool is_own_file(int file);

}  // namespace berth::batch
