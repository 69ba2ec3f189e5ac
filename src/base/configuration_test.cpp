// Tests of configuration.h: settings, their precedence, mistakes, and that secrets are not shown.
#include "base/configuration.h"

#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace berth {
namespace {

// Isolates the tests from this host's files and from the environment.
class ConfigurationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    for (const char* name : {"BERTH_URL", "BERTH_HOST", "BERTH_COMMANDS", "XDG_CONFIG_HOME"}) {
      ::unsetenv(name);
    }
    ::setenv("HOME", folder_.c_str(), 1);
    ::setenv("BERTH_SITE_FILE", path("site.toml").c_str(), 1);
    std::filesystem::create_directory(path(".config"));
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    ::unsetenv("BERTH_SITE_FILE");
    ::unsetenv("BERTH_URL");
    ::unsetenv("BERTH_HOST");
    ::unsetenv("BERTH_COMMANDS");
    ::unsetenv("XDG_CONFIG_HOME");
  }

  std::string path(const std::string& name) const { return fmt::format("{}/{}", folder_, name); }
  void write(const std::string& name, const std::string& text, mode_t mode = 0644) const {
    std::ofstream(path(name)) << text;
    ::chmod(path(name).c_str(), mode);
  }
  // Expects an error of that kind without the secret "Xq7Z", and returns its message.
  std::string expect_error(ErrorKind kind) const {
    const auto configuration = read_configuration();
    EXPECT_FALSE(configuration);
    if (configuration) return {};
    EXPECT_EQ(configuration.error().kind, kind) << configuration.error().message;
    EXPECT_EQ(configuration.error().message.find("Xq7Z"), std::string::npos)
        << configuration.error().message;
    EXPECT_EQ(configuration.error().message.find('\n'), std::string::npos)
        << configuration.error().message;
    return configuration.error().message;
  }

 private:
  std::string folder_ = "/tmp/berth-site-test-XXXXXX";
};

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_F(ConfigurationTest, nothing_is_set) {
  const auto configuration = read_configuration();
  ASSERT_TRUE(configuration) << configuration.error().message;
  EXPECT_EQ(configuration->url, "");
  EXPECT_EQ(configuration->url_source, "");
  EXPECT_TRUE(is_host_name(configuration->host));
}

TEST_F(ConfigurationTest, precedence) {
  write("site.toml", "url = 'redis://site'\nhost = 'site-host'\n");
  auto configuration = read_configuration();
  ASSERT_TRUE(configuration) << configuration.error().message;
  EXPECT_EQ(configuration->url, "redis://site");
  EXPECT_EQ(configuration->url_source, path("site.toml"));
  EXPECT_EQ(configuration->host, "site-host");

  write(".config/berth.toml", "# mine\nurl = \"redis://mine\"\n");
  configuration = read_configuration();
  ASSERT_TRUE(configuration) << configuration.error().message;
  EXPECT_EQ(configuration->url, "redis://mine");
  EXPECT_EQ(configuration->url_source, path(".config/berth.toml"));
  EXPECT_EQ(configuration->host, "site-host") << "each setting on its own";

  std::filesystem::create_directory(path("xdg"));
  write("xdg/berth.toml", "url = \"redis://xdg\"\nhost = 'xdg-host'\n");
  ::setenv("XDG_CONFIG_HOME", path("xdg").c_str(), 1);
  EXPECT_EQ(read_configuration()->url, "redis://xdg");
  ::setenv("XDG_CONFIG_HOME", "relative", 1);
  EXPECT_EQ(read_configuration()->url, "redis://mine");

  ::setenv("BERTH_URL", "redis://variable", 1);
  ::setenv("BERTH_HOST", "variable-host", 1);
  configuration = read_configuration();
  EXPECT_EQ(configuration->url, "redis://variable");
  EXPECT_EQ(configuration->url_source, "BERTH_URL");
  EXPECT_EQ(configuration->host, "variable-host");

  ::setenv("BERTH_URL", "", 1);
  configuration = read_configuration();
  EXPECT_EQ(configuration->url, "") << "no server, whatever the site says";
  EXPECT_EQ(configuration->url_source, "BERTH_URL");
}

TEST_F(ConfigurationTest, whether_commands_are_hidden) {
  EXPECT_EQ(read_configuration()->hides_commands, std::nullopt);
  write("site.toml", "commands = 'hidden'\n");
  EXPECT_EQ(read_configuration()->hides_commands, true);
  ::setenv("BERTH_COMMANDS", "shown", 1);
  EXPECT_EQ(read_configuration()->hides_commands, false);
  ::setenv("BERTH_COMMANDS", "yes", 1);
  EXPECT_TRUE(contains(expect_error(ErrorKind::usage), "BERTH_COMMANDS"));
}

TEST_F(ConfigurationTest, mistakes_are_named_by_file_and_line) {
  const auto line_of = [this](const std::string& text) {
    write("site.toml", text, 0600);
    const std::string message = expect_error(ErrorKind::usage);
    EXPECT_TRUE(contains(message, path("site.toml"))) << message;
    const auto at = message.find("line ");
    return at == std::string::npos ? 0 : std::atoi(message.c_str() + at + 5);
  };
  EXPECT_EQ(line_of("\nurll = 'redis://:Xq7Z@head'\n"), 2);
  EXPECT_EQ(line_of("host = 'a'\n\nurl = redis://:Xq7Z@head\n"), 3);
  EXPECT_EQ(line_of("url = 'redis://:Xq7Z@head\n"), 1);
  EXPECT_EQ(line_of("url = 'redis://:Xq7Z@head'\nurl = 'redis://:Xq7Z@head'\n"), 2);
  EXPECT_EQ(line_of("url = 6379\n"), 1);
  EXPECT_EQ(line_of("[url]\nx = 'Xq7Z'\n"), 1);
  EXPECT_EQ(line_of("\n\n[redis]\nurl = 'redis://:Xq7Z@head'\n"), 3);
  EXPECT_EQ(line_of("url = '\xff\xfe'\n"), 1);
  write("site.toml", std::string(100'000, '#'));
  EXPECT_TRUE(contains(expect_error(ErrorKind::io), "larger than"));
  std::filesystem::remove(path("site.toml"));
  std::filesystem::create_directory(path("site.toml"));
  EXPECT_TRUE(contains(expect_error(ErrorKind::io), path("site.toml")));
}

// Found by fuzzing: toml++ asserts that a key follows, and has undefined behaviour for some
// letters.
TEST_F(ConfigurationTest, odd_characters_outside_of_strings_are_a_mistake) {
  for (const char* text : {"[=]", "[}", "[[.a]]", "[ #", "h\xc3\xb6st = \"a\"", "\xef\xbb\xbb"}) {
    write("site.toml", text);
    EXPECT_TRUE(contains(expect_error(ErrorKind::usage), "this is not TOML")) << text;
  }
}

TEST_F(ConfigurationTest, a_password_that_others_can_read_is_refused) {
  const std::string text = "host = 'a'\nurl = 'redis://alice:Xq7Z@head'\n";
  write("site.toml", text, 0644);
  const std::string message = expect_error(ErrorKind::io);
  EXPECT_TRUE(contains(message, "line 2")) << message;
  EXPECT_TRUE(contains(message, "url = \"file:/etc/berth.url\"")) << message;
  write("site.toml", "url = 'redis://:Xq/7Z@X@head'", 0644);
  EXPECT_NE(expect_error(ErrorKind::io), "");
  write("site.toml", text, 0640);
  const auto configuration = read_configuration();
  ASSERT_TRUE(configuration) << configuration.error().message;
  EXPECT_EQ(configuration->url, "redis://alice:Xq7Z@head");
  write("site.toml", "url = 'redis://alice@head:6379'", 0644);
  EXPECT_TRUE(read_configuration()) << "there is no password in it";
}

TEST_F(ConfigurationTest, a_url_in_a_file_of_its_own) {
  write("berth.url", "redis://:Xq7Z@head \r\nmore\n", 0600);
  for (const char* form : {"file:{}", "file://{}"}) {
    const std::string url = fmt::format(fmt::runtime(form), path("berth.url"));
    write("site.toml", fmt::format("url = '{}'\n", url));
    const auto configuration = read_configuration();
    ASSERT_TRUE(configuration) << configuration.error().message;
    EXPECT_EQ(configuration->url, "redis://:Xq7Z@head");
    EXPECT_EQ(configuration->url_source, path("berth.url"));
  }
  ::setenv("BERTH_URL", fmt::format("file:{}", path("berth.url")).c_str(), 1);
  EXPECT_EQ(read_configuration()->url, "redis://:Xq7Z@head");
  ::chmod(path("berth.url").c_str(), 0604);
  EXPECT_TRUE(contains(expect_error(ErrorKind::io), fmt::format("chmod o= {}", path("berth.url"))));
  if (::geteuid() == 0) {
    ::chmod(path("berth.url").c_str(), 0600);
    ASSERT_EQ(::chown(path("berth.url").c_str(), 65534, 65534), 0);
    EXPECT_TRUE(contains(expect_error(ErrorKind::io), "belongs to"));
  }
  write("nested.url", fmt::format("file:{}\n", path("berth.url")), 0600);
  write("empty.url", "\nredis://:Xq7Z@head\n", 0600);
  for (const char* name : {"nested.url", "empty.url"}) {
    ::setenv("BERTH_URL", fmt::format("file:{}", path(name)).c_str(), 1);
    EXPECT_TRUE(contains(expect_error(ErrorKind::usage), "first line"));
  }
  ::setenv("BERTH_URL", fmt::format("file:{}", path("none.url")).c_str(), 1);
  EXPECT_TRUE(contains(expect_error(ErrorKind::io), "none.url"));
  for (const char* url : {"file:", "file:berth.url", "file://host/path"}) {
    ::setenv("BERTH_URL", url, 1);
    EXPECT_TRUE(contains(expect_error(ErrorKind::usage), "absolute path")) << url;
  }
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  ::setenv("BERTH_URL", fmt::format("file:{}", path("pipe")).c_str(), 1);
  EXPECT_TRUE(contains(expect_error(ErrorKind::io), "not a regular file"));
}

TEST_F(ConfigurationTest, the_hosts_that_jobs_may_go_to) {
  EXPECT_FALSE(read_configuration()->hosts);
  write("site.toml", "hosts = ['gpu-a', \"gpu-b\"]\n");
  EXPECT_EQ(read_configuration()->hosts, (std::vector<std::string>{"gpu-a", "gpu-b"}));
  EXPECT_EQ(read_configuration()->hosts_source, path("site.toml"));
  write(".config/berth.toml", "hosts = []\n");
  EXPECT_EQ(read_configuration()->hosts, std::vector<std::string>{})
      << "none, which is not the same as no list";
  EXPECT_EQ(read_configuration()->hosts_source, path(".config/berth.toml"));
  for (const char* list : {"'any'", "['-o']x", "['a b']", "[3]", "['']", "{a = 'b'}", "[['a']]"}) {
    write(".config/berth.toml", fmt::format("hosts = {}\n", list));
    EXPECT_TRUE(contains(expect_error(ErrorKind::usage), "line 1")) << list;
  }
}

TEST_F(ConfigurationTest, defaults_for_requests) {
  EXPECT_TRUE(read_configuration()->request_defaults.empty());
  write("site.toml", "[defaults]\nmem = '8GiB'\npolicy = 'pack'\n");
  write(".config/berth.toml", "[defaults]\nmem = 'auto'\n");
  const auto defaults = read_configuration()->request_defaults;
  ASSERT_EQ(defaults.size(), 2U);
  EXPECT_EQ(defaults.at("mem").value, "auto");
  EXPECT_EQ(defaults.at("mem").source, path(".config/berth.toml"));
  EXPECT_EQ(defaults.at("policy").value, "pack");
  EXPECT_EQ(defaults.at("policy").source, path("site.toml"));
  for (const char* text : {"[defaults]\ncolour = 'red'", "defaults = 3", "[defaults]\nmem = 8",
                           "[[defaults]]\nmem = '8GiB'", "mem = '8GiB'"}) {
    write(".config/berth.toml", text);
    EXPECT_TRUE(contains(expect_error(ErrorKind::usage), "berth.toml, line ")) << text;
  }
}

TEST_F(ConfigurationTest, sources) {
  EXPECT_EQ(read_configuration()->host_source, "");
  EXPECT_EQ(read_configuration()->commands_source, "");
  write("site.toml", "host = 'gpu07'\ncommands = 'hidden'\n");
  EXPECT_EQ(read_configuration()->host_source, path("site.toml"));
  EXPECT_EQ(read_configuration()->commands_source, path("site.toml"));
  ::setenv("BERTH_HOST", "gpu08", 1);
  EXPECT_EQ(read_configuration()->host_source, "BERTH_HOST");
}

TEST_F(ConfigurationTest, an_unknown_setting_is_named_with_a_guess) {
  write("site.toml", "hsots = ['a']\n");
  EXPECT_TRUE(contains(expect_error(ErrorKind::usage), "'hsots'; did you mean hosts?"));
  write("site.toml", "[defaults]\nlable = 'a'\n");
  EXPECT_TRUE(contains(expect_error(ErrorKind::usage), "did you mean label?"));
}

TEST_F(ConfigurationTest, host_names) {
  for (const char* name : {"a", "gpu-07.lab_2"}) EXPECT_TRUE(is_host_name(name)) << name;
  for (const char* name : {"", "a b", "a/b", "a:b", "ä", "a\n"}) {
    EXPECT_FALSE(is_host_name(name)) << name;
  }
  EXPECT_TRUE(is_host_name(std::string(64, 'x')));
  EXPECT_FALSE(is_host_name(std::string(65, 'x')));
  ::setenv("BERTH_HOST", "a b", 1);
  EXPECT_TRUE(contains(expect_error(ErrorKind::usage), "BERTH_HOST"));
  ::unsetenv("BERTH_HOST");
  write("site.toml", "host = 'a:b'\n");
  EXPECT_TRUE(contains(expect_error(ErrorKind::usage), path("site.toml")));
}

TEST_F(ConfigurationTest, notify_settings_of_the_user_count_before_those_of_the_site) {
  write("site.toml",
        "[notify]\nwebhook = \"file:/x\"\nwebhook_format = \"slack\"\nevents = [\"ended\"]\n");
  auto configuration = read_configuration();
  ASSERT_TRUE(configuration);
  EXPECT_EQ(configuration->notify.texts.at("webhook_format").value, "slack");
  write(".config/berth.toml",
        "[notify]\nwebhook = \"file:/y\"\ncommand = \"true\"\nalways = [\"command\"]\n");
  configuration = read_configuration();
  ASSERT_TRUE(configuration) << configuration.error().message;
  const NotifySettings& notify = configuration->notify;
  EXPECT_EQ(notify.texts.at("webhook").value, "file:/y");
  EXPECT_FALSE(notify.texts.contains("webhook_format")) << "that of another URL";
  EXPECT_EQ(notify.texts.at("command").line, 3U);
  EXPECT_EQ(notify.lists.at("always").values, std::vector<std::string>{"command"});
  EXPECT_EQ(notify.lists.at("events").source, path("site.toml"));
  EXPECT_EQ(notify.distrust_reason, "");
}

TEST_F(ConfigurationTest, notify_settings_that_another_user_could_have_written_do_not_count) {
  for (const mode_t mode : {0620U, 0602U, 0666U}) {
    write(".config/berth.toml", "[notify]\ncommand = \"true\"\n[defaults]\nlabel = \"x\"\n", mode);
    const auto configuration = read_configuration();
    ASSERT_TRUE(configuration);
    EXPECT_TRUE(configuration->notify.texts.empty());
    EXPECT_TRUE(contains(configuration->notify.distrust_reason, "chmod go-w"));
    EXPECT_TRUE(configuration->request_defaults.contains("label"));
  }
}

TEST_F(ConfigurationTest, the_site_cannot_choose_what_is_sent_where) {
  for (const char* const setting :
       {"command = \"Xq7Z\"", "mail = \"Xq7Z\"", "always = [\"Xq7Z\"]"}) {
    write("site.toml", fmt::format("[notify]\n{}\n", setting));
    EXPECT_TRUE(contains(expect_error(ErrorKind::usage), "site.toml, line 2: "));
  }
}

TEST_F(ConfigurationTest, a_webhook_is_read_only_from_a_private_file) {
  const auto read = [&] {
    return read_webhook_lines({"file:~/hook", path(".config/berth.toml"), 2});
  };
  EXPECT_EQ(read().error().kind, ErrorKind::io);
  write("hook", "https://Xq7Z/  \n\nA: b\r\n", 0600);
  ASSERT_TRUE(read());
  EXPECT_EQ(*read(), (std::vector<std::string>{"https://Xq7Z/", "A: b"}));
  write("hook", "https://Xq7Z/", 0604);
  const auto refused = read();
  ASSERT_FALSE(refused);
  EXPECT_TRUE(contains(refused.error().message, "chmod 600"));
  EXPECT_FALSE(contains(refused.error().message, "Xq7Z"));
  EXPECT_EQ(read_webhook_lines({"file:hook", "f", 2}).error().kind, ErrorKind::usage);
}

}  // namespace
}  // namespace berth
