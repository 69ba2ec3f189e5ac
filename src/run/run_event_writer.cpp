// The lines; see run_teller.h.
#include "run/run_event_writer.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lease/job_environment.h"

namespace berth {
namespace {

using Json = nlohmann::ordered_json;

// By one write(2), so that a reader sees whole lines. Where nobody reads any more, nobody is told.
void tell(int fd, const Json& event) {
  if (fd < 0) return;
  const std::string line = event.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
  (void)!::write(fd, line.data(), line.size());
}

}  // namespace

RunEventWriter::RunEventWriter(int fd) : fd_(fd) {
  if (fd_ >= 0) ::fcntl(fd_, F_SETFD, FD_CLOEXEC);
}

Show RunEventWriter::show() const {
  if (fd_ < 0) return {};
  return {[fd = fd_](const WaitNews& news) {
            tell(fd, {{"event", "waiting"}, {"reason", news.reason}});
          },
          [fd = fd_](const std::string& text) {
            tell(fd, {{"event", "notice"}, {"text", text}});
          }};
}

void RunEventWriter::granted(const Lease& lease) const {
  tell(fd_, {{"event", "granted"},
             {"lease", lease.id()},
             {"gpus", index_list(lease.host_gpus(), lease.record().uuids)}});
}

void RunEventWriter::ended(const AttemptEnd& end) const {
  tell(fd_, {{"event", "ended"}, {"out_of_memory", end.verdict == ExitClass::out_of_memory}});
}

}  // namespace berth
