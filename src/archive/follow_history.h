// Follows the history of all users: returns new lines as they are written (`berth log --follow`).
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

// Not thread-safe. With a server a line may be returned twice: a host sends it again if it gets no
// reply.
class HistoryFollower {
 public:
  HistoryFollower() = default;
  HistoryFollower(const HistoryFollower&) = delete;
  HistoryFollower& operator=(const HistoryFollower&) = delete;
  virtual ~HistoryFollower() = default;

  // A descriptor that is readable when there may be new lines; -1 if there is none now (the server
  // does not answer). Call read_new_entries() now and then even if it is not readable.
  virtual int poll_fd() const = 0;

  // The entries that were written since the last call.
  virtual std::vector<HistoryEntry> read_new_entries() = 0;
};

// Starts now: existing lines are not new. Fails only with a server (`harbour.url`).
Result<std::unique_ptr<HistoryFollower>> follow_history(const HarbourLocation& harbour);

// Follows the files of this host by inotify. Includes users whose first line comes later.
class FileFollower : public HistoryFollower {
 public:
  explicit FileFollower(std::string archive);

  int poll_fd() const override { return inotify_.get(); }
  std::vector<HistoryEntry> read_new_entries() override;

 private:
  void read_folder(const UserFolder& folder, std::vector<HistoryEntry>* entries);

  std::string archive_;
  UniqueFd inotify_;
  std::map<std::string, off_t> offsets_;  // by path: up to where each file was read
};

// Follows the server's stream of all hosts. Returns no lines while the server does not answer.
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
  std::optional<RedisConnection> wait_connection_;  // has sent a blocking read of the stream
};

}  // namespace berth
