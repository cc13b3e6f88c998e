// The doctor on this machine: what it says as JSON, and faults that are made for it to find.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/process.h"

namespace sinew::test {
namespace {

const std::string kModel = SINEW_SOURCE_DIR "/models/tiny/sinew-tiny-q8_0.gguf";

struct Report {
  int exit_status = -1;
  nlohmann::json json;

  nlohmann::json check(const std::string& id) const {
    for (const auto& check : json.value("checks", nlohmann::json::array()))
      if (check["id"] == id) return check;
    ADD_FAILURE() << "no check " << id << " in " << json.dump();
    return {{"state", ""}, {"reason", ""}, {"remedy", ""}};
  }
};

// Under a shell that first sets `limit`.
Report doctor(const std::string& arguments, const std::string& limit = "true") {
  const auto output = run_process(
      {"/bin/sh", "-c", limit + " && exec '" SINEW_PROGRAM "' doctor --json " + arguments}, "",
      std::chrono::seconds(60));
  EXPECT_TRUE(output) << output.error().message;
  if (!output) return {};
  Report report{output->exit_status, nlohmann::json::parse(output->out, nullptr, false)};
  EXPECT_FALSE(report.json.is_discarded()) << output->out << output->err;
  EXPECT_EQ(report.json.value("schema", 0), 1);
  EXPECT_EQ(report.json.value("ok", false), report.exit_status == 0);
  return report;
}

TEST(Doctor, AWholeModelPasses) {
  const auto check = doctor("'" + kModel + "'").check("model");
  EXPECT_EQ(check["state"], "OK") << check;
}

TEST(Doctor, NamesATruncatedAndAMissingModel) {
  TemporaryFolder folder;
  const auto bytes = read_file(kModel);
  ASSERT_TRUE(bytes);
  ASSERT_TRUE(write_file(folder.file("half.gguf"), bytes->substr(0, bytes->size() / 2)));
  for (const char* name : {"half.gguf", "none.gguf"}) {
    const Report report = doctor("'" + folder.file(name) + "'");
    EXPECT_EQ(report.exit_status, 1);
    const auto check = report.check("model");
    EXPECT_EQ(check["state"], "FAIL");
    EXPECT_NE(check["reason"].get<std::string>().find(name), std::string::npos) << check;
    EXPECT_NE(check["remedy"], "");
  }
}

TEST(Doctor, NamesLowLimitsAndTheirRemedies) {
  const Report files = doctor("", "ulimit -n 100");
  EXPECT_EQ(files.exit_status, 1);
  EXPECT_EQ(files.check("open_files")["state"], "FAIL");
  EXPECT_EQ(files.check("open_files")["remedy"], "ulimit -n 4096");
  const auto locked = doctor("", "ulimit -l 64").check("memlock");
  EXPECT_NE(locked["state"], "OK");
  EXPECT_NE(locked["reason"].get<std::string>().find("64.0 KiB"), std::string::npos) << locked;
  EXPECT_NE(locked["remedy"], "");
}

// A process that looks like a rank: it waits to open a pipe named "rank" that nobody writes.
TEST(Doctor, NamesALeftoverRankByItsPid) {
  TemporaryFolder folder;
  const auto output = run_process(
      {"/bin/bash", "-c",
       "cd '" + folder.file("") +
           "' && mkfifo rank && { bash -c 'exec -a sinew cat rank' & } && pid=$! && "
           "until tr '\\0' ' ' < /proc/$pid/cmdline | grep -q '^sinew rank'; do sleep 0.05; done; "
           "'" SINEW_PROGRAM "' doctor --json; kill $pid; echo \"pid $pid\" >&2"},
      "", std::chrono::seconds(60));
  ASSERT_TRUE(output) << output.error().message;
  const auto json = nlohmann::json::parse(output->out, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << output->out;
  const auto check = Report{0, json}.check("leftovers");
  EXPECT_EQ(check["state"], "WARN");
  const std::size_t at = output->err.rfind("pid ");
  ASSERT_NE(at, std::string::npos);
  const std::string pid = output->err.substr(at + 4, output->err.size() - at - 5);
  EXPECT_NE((check["remedy"].get<std::string>() + " ").find(" " + pid + " "), std::string::npos)
      << check << " for " << pid;
}

TEST(Doctor, TellsAPeerThatAnswersFromOneThatIsNoAddress) {
  const Report report = doctor("--peers 127.0.0.1:1,nowhere");
  EXPECT_EQ(report.check("peer.127.0.0.1:1")["state"], "OK");
  EXPECT_EQ(report.check("peer.nowhere")["state"], "FAIL");
  EXPECT_EQ(report.exit_status, 1);
}

}  // namespace
}  // namespace sinew::test
