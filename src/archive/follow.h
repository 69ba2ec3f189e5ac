// New lines of everybody's history, as they are written.
#pragma once

#include <map>
#include <string>
#include <sys/types.h>
#include <vector>

#include "archive/history.h"
#include "base/unique_fd.h"

namespace berth {

class HistoryFollower {
 public:
  // From now on: what stands there already is not new.
  explicit HistoryFollower(std::string archive);

  // Readable when there may be something new; -1 if the kernel cannot tell. Users who come later
  // are seen too.
  int news() const { return watch_.get(); }

  // What has been written since the last time.
  std::vector<HistoryEntry> next();

 private:
  void look(const UserFolder& folder, std::vector<HistoryEntry>* entries);

  std::string archive_;
  UniqueFd watch_;
  std::map<std::string, off_t> read_;  // how much of each file
};

}  // namespace berth
