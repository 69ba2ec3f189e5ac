// Starting and killing servers; see redis_server.h.
#include "cluster/redis/testing/redis_server.h"

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <netinet/in.h>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "cluster/redis/socket.h"

namespace berth::testing {
namespace {

std::uint16_t free_port() {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  (void)::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size);
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

}  // namespace

TemporaryFolder::TemporaryFolder() : path_("/tmp/berth-redis-test-XXXXXX") {
  if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no temporary folder");
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

RedisServer::RedisServer(std::uint16_t port, const Options& options) : port_(port) {
  std::vector<std::string> command{"redis-server",
                                   "--port",
                                   std::to_string(port),
                                   "--bind",
                                   "127.0.0.1",
                                   "--unixsocket",
                                   url().socket,
                                   "--save",
                                   "",
                                   "--appendonly",
                                   "no",
                                   "--dir",
                                   folder_.path(),
                                   "--enable-debug-command",
                                   "yes"};
  command.insert(command.end(), options.begin(), options.end());
  start(command);
}

RedisServer::RedisServer(std::uint16_t port, const RedisServer& master, const std::string& settings)
    : port_(port) {
  const std::string file = fmt::format("{}/sentinel.conf", folder_.path());
  std::ofstream(file) << fmt::format(
      "port {}\nbind 127.0.0.1\nunixsocket {}\ndir {}\nsentinel monitor berth-test 127.0.0.1 {} "
      "1\n{}\n",
      port, url().socket, folder_.path(), master.port(), settings);
  start({"redis-sentinel", file});
}

RedisServer RedisServer::on_port(const Options& options) {
  return RedisServer(free_port(), options);
}

RedisServer RedisServer::sentinel_of(const RedisServer& master, const std::string& settings) {
  return RedisServer(free_port(), master, settings);
}

void RedisServer::start(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const std::string log = fmt::format("{}/log", folder_.path());
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  while (!connect_unix(url().socket, kRedisConnectTimeout)) {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      std::ifstream in(log);
      throw std::runtime_error(fmt::format("{} did not start: {}", command[0],
                                           std::string(std::istreambuf_iterator<char>(in), {})));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void RedisServer::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

RedisUrl RedisServer::url() const {
  RedisUrl url;
  url.socket = fmt::format("{}/redis.sock", folder_.path());
  return url;
}

RedisUrl RedisServer::tcp_url() const {
  RedisUrl url;
  url.addresses = {{"127.0.0.1", port_}};
  return url;
}

RedisConnection RedisServer::connect(const RedisUrl& url) {
  auto connection = RedisConnection::open(url);
  if (!connection) throw std::runtime_error(connection.error().message);
  return std::move(*connection);
}

}  // namespace berth::testing
