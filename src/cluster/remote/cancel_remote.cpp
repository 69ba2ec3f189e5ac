// Finds and ends tickets and jobs on other hosts; see cancel_remote.h.
#include "cluster/remote/cancel_remote.h"

#include <algorithm>
#include <csignal>
#include <fmt/format.h>
#include <optional>
#include <unistd.h>
#include <utility>

#include "base/environment.h"
#include "base/shell.h"
#include "base/signals.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/users.h"
#include "cluster/remote/forward.h"
#include "cluster/remote/permitted_hosts.h"
#include "cluster/remote/ssh.h"
#include "cluster/store/redis_store.h"
#include "harbour/harbour.h"
#include "run/job_wait.h"
#include "run/other_hosts.h"

namespace berth {
namespace {

// For ssh to connect, and for a process that SIGKILL does not end at once.
constexpr std::chrono::seconds kConnectionTime(60);
// For the berth process of a detached job to record the end that it sees through ssh.
constexpr std::chrono::seconds kRecordingTime(10);

void add_argument(RemoteCancel& targets, const std::string& host, const std::string& word) {
  std::vector<std::string>& words = targets.arguments[host];
  if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
}

Result<void> check_host_of_job(const std::string& host, const std::string& id) {
  const auto folder = find_job(id);
  return check_permitted_host(host, folder ? folder->spec.remote_hosts : std::vector<std::string>{},
                              fmt::format("job {} runs on {}", id, host),
                              fmt::format("berth cancel {}", id));
}

class TargetFinder {
 public:
  TargetFinder(HarbourLocation where, CancelSelection& selection)
      : where_(std::move(where)), selection_(selection) {}

  Result<RemoteCancel> find() {
    harbour_ = TRY(Harbour::open_existing(where_));
    if (harbour_) local_ = TRY(read_contents(*harbour_));
    const bool only_here = !where_.url || get_env(kForwardedVariable);
    std::vector<std::string> here;
    for (const std::string& id : selection_.ids) {
      if (!only_here && TRY(add_id(id))) continue;
      here.push_back(resolve_sent_job(id));
    }
    selection_.ids = std::move(here);
    const bool by_selection = selection_.all || selection_.mine || !selection_.label.empty();
    if (by_selection && !only_here) TRY(add_selected());
    selection_.elsewhere = targets_.detached_jobs;
    return std::move(targets_);
  }

 private:
  // By the files of this host: a record in Redis cannot divert what is here.
  bool is_here(const std::string& id) const {
    const auto is_named = [&](const Record& record) {
      return has_job_id(record, id) && (record.uid == ::geteuid() || is_root());
    };
    return std::any_of(local_.leases.begin(), local_.leases.end(), is_named) ||
           std::any_of(local_.tickets.begin(), local_.tickets.end(), is_named);
  }

  // The lease on this host of a job that another host has sent.
  std::string resolve_sent_job(const std::string& id) {
    if (find_job(id)) return id;
    for (const Record& lease : local_.leases) {
      if (lease.job_id != id || lease.uid != ::geteuid()) continue;
      targets_.names[lease.id] = id;
      return lease.id;
    }
    return id;
  }

  // False: it is not on another host.
  Result<bool> add_id(const std::string& id) {
    if (!is_id(id) || is_here(id)) return false;
    const auto folder = find_job(id);
    if (folder && folder->spec.remote_hosts.empty()) return false;
    const std::string& job_id = folder ? folder->spec.id : id;
    const std::vector<RemoteClient> clients = TRY(find_remote_clients(job_id));
    const auto is_other_users = [](const RemoteClient& client) {
      return client.record.uid != ::geteuid() && !is_root();
    };
    if (clients.empty()) return false;
    if (std::all_of(clients.begin(), clients.end(), is_other_users))
      return tl::make_unexpected(permission_error(job_id, clients.front()));
    for (const RemoteClient& client : clients) {
      if (is_other_users(client)) continue;
      if (client.is_lease()) {
        TRY(check_host_of_job(client.host, job_id));
        add_argument(targets_, client.host, job_id);
      } else {
        add_ticket(client.record.id, client.host, job_id);
      }
    }
    if (folder) targets_.detached_jobs.push_back(job_id);
    return true;
  }

  static Error permission_error(const std::string& id, const RemoteClient& client) {
    return {ErrorKind::permission,
            fmt::format("job {} on {} belongs to {}; only {} can end it", id, client.host,
                        user_name(client.record.uid), owner_or_root(client.record.uid))};
  }

  void add_ticket(const std::string& id, const std::string& host, const std::string& argument) {
    RemoteTicket& ticket = targets_.tickets[id];
    ticket.hosts.push_back(host);
    ticket.argument = argument;
  }

  std::string selection_flag() const {
    return selection_.label.empty() ? "--mine" : fmt::format("--label={}", selection_.label);
  }

  bool is_wanted(const Record& record) const {
    return record.uid == ::geteuid() && record.parent_lease.empty() &&
           (selection_.label.empty() || record.label == selection_.label);
  }

  // Of this user's jobs. Root's --all means all users of this host.
  Result<void> add_selected() {
    const auto jobs = list_jobs();
    for (const Status& host : TRY(read_other_hosts(where_))) {
      for (const TicketStatus& ticket : host.queue) {
        // If it is in the queue of this host, too, cancel() ends it.
        if (!is_wanted(ticket.record) || is_here(ticket.record.id)) continue;
        add_ticket(ticket.record.id, host.host, selection_.only_waiting ? "" : selection_flag());
        const auto folder = find_job(ticket.record.id);
        if (folder && !folder->spec.remote_hosts.empty())
          targets_.detached_jobs.push_back(folder->spec.id);
      }
      if (selection_.only_waiting) continue;
      bool has_jobs = false;
      std::vector<std::string> named;
      for (const Record& lease : host.leases) {
        if (!is_wanted(lease)) continue;
        has_jobs = true;
        for (const DetachedJob& job : jobs ? *jobs : std::vector<DetachedJob>{}) {
          if (job.spec.id != lease.job_id || job.spec.remote_hosts.empty() || is_here(job.spec.id))
            continue;
          targets_.detached_jobs.push_back(job.spec.id);
          named.insert(named.end(), job.spec.remote_hosts.begin(), job.spec.remote_hosts.end());
        }
      }
      if (has_jobs) add_selected_host(host.host, named);
    }
    return {};
  }

  void add_selected_host(const std::string& host, const std::vector<std::string>& named) {
    const std::string flag = selection_flag();
    const auto permitted =
        check_permitted_host(host, named, fmt::format("you have jobs on {}", host),
                             fmt::format("berth cancel {}", shell_quote(flag)));
    if (permitted) {
      add_argument(targets_, host, flag);
    } else {
      targets_.refusals.push_back(permitted.error());
    }
  }

  HarbourLocation where_;
  CancelSelection& selection_;
  std::optional<Harbour> harbour_;
  HarbourContents local_;
  RemoteCancel targets_;
};

Result<void> cancel_ticket(const RedisUrl& url, const std::string& id,
                           const std::vector<std::string>& hosts) {
  for (const std::string& host : hosts) {
    StoreChange change;
    change.id = id;
    change.tickets_to_end = {id};
    change.rings = {id};
    RedisHostStore store(url, host);
    TRY(store.commit(change));
    store.ring_front();
  }
  return {};
}

void print_lines(const std::string& host, std::string_view text, bool is_error) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.starts_with("berth: ")) line.remove_prefix(std::string_view("berth: ").size());
    const std::string shown = fmt::format("{}: {}", host, printable(line));
    if (is_error) {
      print_message(shown);
    } else {
      print(shown + "\n");
    }
  }
}

// Returns the exit code of `berth cancel` there.
Result<int> cancel_on_host(const std::string& host, const std::vector<std::string>& arguments,
                           std::chrono::nanoseconds grace) {
  SignalQueue signals({SIGINT, SIGTERM, SIGHUP, SIGQUIT});
  const Ssh ssh = TRY(Ssh::create(host, signals.previous_mask()));
  std::vector<std::string> words{
      "cancel", fmt::format("--grace={}s", std::chrono::ceil<std::chrono::seconds>(grace).count())};
  words.insert(words.end(), arguments.begin(), arguments.end());
  Ssh::RunLimits limits;
  limits.timeout = std::chrono::ceil<std::chrono::milliseconds>(grace) + kConnectionTime;
  limits.interrupt_fd = signals.fd();
  limits.is_interrupted = [&signals] { return signals.next().has_value(); };
  const Ssh::CommandOutput done = TRY(ssh.run(forwarded_berth_command(words), "", limits));
  print_lines(host, done.output, false);
  print_lines(host, done.errors, true);
  return done.code == kSshFailed ? exit_code(ErrorKind::io) : done.code;
}

}  // namespace

Result<RemoteCancel> find_remote_targets(CancelSelection& selection) {
  HarbourLocation where = harbour_location();
  if (where.configuration_error) return RemoteCancel{};  // cancel() reports it
  return TargetFinder(std::move(where), selection).find();
}

Result<void> cancel_remote_tickets(RemoteCancel& targets) {
  const HarbourLocation where = harbour_location();
  for (const auto& [id, ticket] : targets.tickets) {
    TRY(cancel_ticket(*where.url, id, ticket.hosts));
    // It may have been granted since it was found.
    const std::vector<RemoteClient> clients = TRY(find_remote_clients(id));
    const auto lease = std::find_if(clients.begin(), clients.end(), [](const RemoteClient& client) {
      return client.is_lease() && client.record.uid == ::geteuid();
    });
    if (lease == clients.end()) {
      print(fmt::format("ticket {} is cancelled\n", id));
    } else if (ticket.argument.empty()) {
      print_message(fmt::format("ticket {} is granted now, so its job goes on", id));
    } else if (const auto permitted = check_host_of_job(lease->host, id)) {
      add_argument(targets, lease->host, ticket.argument);
    } else {
      targets.refusals.push_back(permitted.error());
    }
  }
  return {};
}

int cancel_remote_jobs(const RemoteCancel& targets, std::chrono::nanoseconds grace) {
  int code = 0;
  for (const Error& refusal : targets.refusals) {
    print_message(refusal.message);
    code = exit_code(refusal.kind);
  }
  for (const auto& [host, arguments] : targets.arguments) {
    const auto done = cancel_on_host(host, arguments, grace);
    if (!done) print_message(done.error().message);
    const int one = done ? *done : exit_code(done.error().kind);
    if (one != 0) code = one;
  }
  for (const std::string& id : targets.detached_jobs)
    (void)wait_for_job(id, std::chrono::steady_clock::now() + kRecordingTime, -1);
  return code;
}

}  // namespace berth
