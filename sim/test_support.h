// Helpers for the tests of the simulated driver: folders, child processes, calls by name.
#pragma once

#include <array>
#include <csignal>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "devices/nvml_abi.h"

namespace berth::sim {

// A temporary folder, which the destructor removes with its contents.
class TestFolder {
 public:
  TestFolder() {
    std::string name = "/tmp/berth-sim-test.XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, std::string_view text) const {
    std::ofstream(file(name)) << text;
    return file(name);
  }

 private:
  std::string path_;
};

// A child process that runs `body`. Where `body` calls its argument, the child reports that it has
// reached this point, and waits there for go_on() or kill(). If an expectation fails in the child,
// its exit status is 1.
class Child {
 public:
  using Point = std::function<void()>;

  explicit Child(const std::function<void(const Point&)>& body) {
    EXPECT_EQ(::pipe(reached_.data()), 0);
    EXPECT_EQ(::pipe(go_.data()), 0);
    pid_ = ::fork();
    if (pid_ != 0) {
      ::close(reached_[1]);
      ::close(go_[0]);
      return;
    }
    ::close(reached_[0]);
    ::close(go_[1]);
    body([this] {
      char byte = 0;
      EXPECT_EQ(::write(reached_[1], &byte, 1), 1);
      while (::read(go_[0], &byte, 1) < 0 && errno == EINTR) {
      }
    });
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  ~Child() {
    if (pid_ > 0) kill();
    ::close(reached_[0]);
    ::close(go_[1]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  bool wait_for_point() {
    char byte = 0;
    return ::read(reached_[0], &byte, 1) == 1;
  }
  void go_on() {
    const char byte = 0;
    EXPECT_EQ(::write(go_[1], &byte, 1), 1);
  }
  int finish() {  // the exit status; -1 if a signal ended it
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    finish();
  }

 private:
  std::array<int, 2> reached_{};
  std::array<int, 2> go_{};
  pid_t pid_ = -1;
};

inline void in_child(const std::function<void()>& body) {
  Child child([&](const Child::Point&) { body(); });
  EXPECT_EQ(child.finish(), 0);
}

// A library of the simulated driver, loaded as by a client. The arguments of call() must have the
// types of the function's parameters.
class Library {
 public:
  explicit Library(const std::string& path)
      : handle_(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) ADD_FAILURE() << ::dlerror();
  }
  bool has(const std::string& name) const { return ::dlsym(handle_, name.c_str()) != nullptr; }

  template <class R = int, class... Args>
  R call(const char* name, Args... args) const {
    auto* function = reinterpret_cast<R (*)(Args...)>(::dlsym(handle_, name));
    if (function == nullptr) {
      ADD_FAILURE() << name << " is missing";
      return R{};
    }
    return function(args...);
  }

 private:
  void* handle_;
};

// NVML with an open session.
class Nvml : public Library {
 public:
  Nvml() : Library(BERTH_TEST_SIM_DIR "/libnvidia-ml.so.1") { EXPECT_EQ(call("nvmlInit_v2"), 0); }

  nvml::Device card(unsigned index) const {
    nvml::Device device = nullptr;
    EXPECT_EQ(call("nvmlDeviceGetHandleByIndex_v2", index, &device), 0);
    return device;
  }
  std::string text(const char* name, nvml::Device device) const {
    std::array<char, 96> buffer{};
    EXPECT_EQ(call(name, device, buffer.data(), 96U), 0) << name;
    return buffer.data();
  }
  unsigned number(const char* name, nvml::Device device) const {
    unsigned value = 0;
    EXPECT_EQ(call(name, device, &value), 0) << name;
    return value;
  }
};

inline Library nvml_library() {
  return Library(BERTH_TEST_SIM_DIR "/libnvidia-ml.so.1");
}
inline Library cuda_library() {
  return Library(BERTH_TEST_SIM_DIR "/libcuda.so.1");
}

// Selects the simulated server for this process and its children.
inline void use_server(const TestFolder& folder, const std::string& sim) {
  ::setenv("BERTH_SIM", sim.c_str(), 1);
  ::setenv("BERTH_SIM_STATE", folder.file("state").c_str(), 1);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  ::unsetenv("CUDA_DEVICE_ORDER");
}

// Gives each test its own simulated server.
class ServerTest : public testing::Test {
 protected:
  TestFolder folder;
  // Runs `body` in a child process on the server that `sim` describes.
  void on(const std::string& sim, const std::function<void()>& body) {
    in_child([&] {
      use_server(folder, sim);
      body();
    });
  }
  void on_json(std::string_view json, const std::function<void()>& body) {
    on(folder.write("server.json", json), body);
  }
};

}  // namespace berth::sim
