#include "host/tool.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "support/process.h"

namespace sinew {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{60000};

TEST(RunTool, GivesOutputAndStatus) {
  const auto output = run_tool({"sh", "-c", "echo out; echo err >&2; exit 3"}, kLong, 100);
  ASSERT_TRUE(output) << output.error().message;
  EXPECT_EQ(output->out, "out\n");
  EXPECT_EQ(output->exit_status, 3);
}

TEST(RunTool, NamesAToolThatIsNotThere) {
  const auto output = run_tool({"sinew-no-such-tool"}, kLong, 100);
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code, ErrorCode::kNotFound);
}

TEST(RunTool, EndsAToolThatIsLateEvenIfItIgnoresTheRequest) {
  for (const char* script :
       {"exec sleep 600", "trap '' TERM; while :; do sleep 1; done", "exec >&-; exec sleep 600"}) {
    const auto output = run_tool({"sh", "-c", script}, milliseconds(300), 100);
    ASSERT_FALSE(output) << script;
    EXPECT_EQ(output.error().code, ErrorCode::kDeadline) << output.error().message;
  }
}

TEST(RunTool, WhatALateToolStartedEndsWithIt) {
  test::TemporaryFolder folder;
  const std::string script = "sleep 600 & echo $! > '" + folder.file("pid") + "'; wait";
  ASSERT_FALSE(run_tool({"sh", "-c", script}, milliseconds(2000), 100));
  const auto text = test::read_file(folder.file("pid"));
  ASSERT_TRUE(text) << "the shell did not start in time";
  const std::string command = "/proc/" + text->substr(0, text->find('\n')) + "/cmdline";
  // Until somebody collects it, it is a zombie without a command line.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto lives = [&] { return !test::read_file(command).value_or("").empty(); };
  while (lives() && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_FALSE(lives());
}

TEST(RunTool, EndsAToolThatSaysTooMuch) {
  const auto output = run_tool({"sh", "-c", "while :; do echo more; done"}, kLong, 100);
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code, ErrorCode::kIo) << output.error().message;
}

}  // namespace
}  // namespace sinew
