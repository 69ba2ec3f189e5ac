// Tickets and leases on the other hosts of a harbour, as Redis has them, for the commands about
// jobs.
//
// Any client of Redis can write a record in any user's name. So what is found here is shown, waited
// for, and named to the other host, which checks it by its own files. It permits nothing here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "harbour/harbour.h"
#include "run/job_folder.h"
#include "status/status.h"

namespace berth {

// The other hosts, without their drivers. Empty if the harbour has no server.
Result<std::vector<Status>> read_other_hosts(const HarbourLocation& where = harbour_location());

// A ticket or lease on another host.
struct RemoteClient {
  std::string host;
  Record record;

  bool is_lease() const { return !record.uuids.empty(); }
};

// Whether the ticket or lease is that of the job `id`, or is called so.
inline bool has_job_id(const Record& record, const std::string& id) {
  return record.id == id || record.job_id == id;
}

// The tickets and leases on other hosts with has_job_id(). If one is on `last_host`, only those
// there: that is faster. Empty if the harbour has no server.
Result<std::vector<RemoteClient>> find_remote_clients(const std::string& id,
                                                      const std::string& last_host = "");

// The lease on this host of a job that another host has sent; nullopt: there is none. Its record
// is the file that the user's process has written.
Result<std::optional<Record>> find_sent_job(Harbour& harbour, const std::string& id);

// The host on which this user's job `id` was started, which has its folder if it is a detached job.
// Empty: no host has such a job.
Result<std::string> find_job_host(const std::string& id);

}  // namespace berth
