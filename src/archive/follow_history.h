// New lines of everybody's history, as they are written.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "archive/history.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "cluster/store/history_stream.h"
#include "harbour/location.h"

namespace berth {

class HistoryFollower {
 public:
  HistoryFollower() = default;
  HistoryFollower(const HistoryFollower&) = delete;
  HistoryFollower& operator=(const HistoryFollower&) = delete;
  virtual ~HistoryFollower() = default;

  // Readable when there may be something new; -1 if nobody can tell now.
  virtual int poll_fd() const = 0;

  // What has been written since the last time.
  virtual std::vector<HistoryEntry> read_new_entries() = 0;
};

// From now on: what stands there already is not new.
Result<std::unique_ptr<HistoryFollower>> follow_history(const HarbourLocation& harbour);

// By this host's files. Users who come later are seen too.
class FileFollower : public HistoryFollower {
 public:
  explicit FileFollower(std::string archive);

  int poll_fd() const override { return inotify_.get(); }
  std::vector<HistoryEntry> read_new_entries() override;

 private:
  void read_folder(const UserFolder& folder, std::vector<HistoryEntry>* entries);

  std::string archive_;
  UniqueFd inotify_;
  std::map<std::string, off_t> offsets_;  // how much of each file
};

// By the stream of all hosts. With a server that is away nothing is new until it is back.
class StreamFollower : public HistoryFollower {
 public:
  StreamFollower(const RedisUrl& url, HistoryStream stream);

  int poll_fd() const override { return wait_connection_ ? wait_connection_->fd() : -1; }
  std::vector<HistoryEntry> read_new_entries() override;

 private:
  void open_wait_connection();

  RedisUrl url_;
  RedisSession server_;
  HistoryStream stream_;
  std::optional<RedisConnection> wait_connection_;  // waits for what comes next
};

}  // namespace berth
