// What a user sees after a mistake: one line on standard error that names the cause, the exit
// status of docs/user-guide.md, nothing on standard output, and an end in seconds.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "support/process.h"

namespace sinew::test {
namespace {

const std::string kModel = SINEW_SOURCE_DIR "/models/tiny/sinew-tiny-q8_0.gguf";

ProcessOutput sinew(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), SINEW_PROGRAM);
  const auto output = run_process(arguments, "", std::chrono::seconds(30));
  EXPECT_TRUE(output) << output.error().message;
  return output.value_or(ProcessOutput{});
}

// A command that must be refused with `status` and one line in which `cause` is found.
void expect_refused(const std::vector<std::string>& arguments, int status, const char* cause) {
  const ProcessOutput output = sinew(arguments);
  EXPECT_EQ(output.exit_status, status) << output.err;
  EXPECT_EQ(output.out, "");
  EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
  EXPECT_TRUE(std::regex_search(output.err, std::regex(cause, std::regex::icase)))
      << "expected " << cause << " in: " << output.err;
}

std::vector<std::string> run_with(const std::string& model, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{"run", model, "Hello", "-n", "4"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::string model_bytes() {
  const auto bytes = read_file(kModel);
  EXPECT_TRUE(bytes) << bytes.error().message;
  return bytes.value_or("");
}

// Offset of `name` as GGUF writes a string: its length in 8 bytes, then the bytes.
std::size_t offset_of(const std::string& bytes, const std::string& name) {
  std::string written(8, '\0');
  const std::uint64_t length = name.size();
  std::memcpy(written.data(), &length, sizeof length);
  const std::size_t at = bytes.find(written + name);
  EXPECT_NE(at, std::string::npos) << name;
  return at + sizeof length;
}

// Position of the tensor's dimension count in the directory; dimensions, type and offset follow.
std::size_t tensor_entry(const std::string& bytes, const std::string& name) {
  return offset_of(bytes, name) + name.size();
}

class BadFile : public ::testing::Test {
 protected:
  void expect_file_refused(const std::string& bytes, int status, const char* cause) {
    const std::string path = folder_.file("model.gguf");
    ASSERT_TRUE(write_file(path, bytes));
    expect_refused(run_with(path), status, cause);
  }
  TemporaryFolder folder_;
};

TEST_F(BadFile, MissingFileIsNotFound) {
  expect_refused(run_with(folder_.file("absent.gguf")), 66, "absent.gguf");
}
TEST_F(BadFile, FolderIsNoModel) {
  const ProcessOutput output = sinew(run_with(SINEW_SOURCE_DIR "/src"));
  EXPECT_TRUE(output.exit_status == 65 || output.exit_status == 74) << output.err;
  EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
}
TEST_F(BadFile, TextIsNoGguf) {
  expect_file_refused("these are only words\n", 65, "GGUF");
}
TEST_F(BadFile, EmptyFileIsNoGguf) {
  expect_file_refused("", 65, "model.gguf");
}
TEST_F(BadFile, TruncatedFileIsRefused) {
  const std::string bytes = model_bytes();
  expect_file_refused(bytes.substr(0, bytes.size() / 2), 65, "model.gguf");
  expect_file_refused(bytes.substr(0, 1000), 65, "model.gguf");
}
TEST_F(BadFile, UnknownArchitectureIsNamed) {
  std::string bytes = model_bytes();
  bytes.replace(offset_of(bytes, "deepseek2"), 9, "deepseex9");
  expect_file_refused(bytes, 69, "deepseex9");
}
TEST_F(BadFile, MissingTensorIsNamed) {
  std::string bytes = model_bytes();
  const std::string name = "blk.1.attn_kv_a_norm.weight";
  bytes[offset_of(bytes, name) + 6] = 'X';
  expect_file_refused(bytes, 65, "blk\\.1\\.attn_kv_a_norm\\.weight");
}
TEST_F(BadFile, WrongShapeNamesTheTensor) {
  std::string bytes = model_bytes();
  const std::size_t first = tensor_entry(bytes, "output_norm.weight") + 4;
  const std::uint64_t half = 128;
  std::memcpy(bytes.data() + first, &half, sizeof half);
  expect_file_refused(bytes, 65, "output_norm");
}
TEST_F(BadFile, UnsupportedTypeNamesTheTensor) {
  std::string bytes = model_bytes();
  // One dimension: count (4 bytes), length (8), then the type.
  const std::size_t type = tensor_entry(bytes, "output_norm.weight") + 4 + 8;
  const std::uint32_t unknown = 9999;
  std::memcpy(bytes.data() + type, &unknown, sizeof unknown);
  expect_file_refused(bytes, 69, "output_norm.*9999|9999.*output_norm");
}

TEST(BadFlag, EveryImpossibleSplitIsUsage) {
  expect_refused(run_with(kModel, {"--ranks", "0"}), 2, "ranks");
  expect_refused(run_with(kModel, {"--ranks", "9"}), 2, "8");
  expect_refused(run_with(kModel, {"--ranks", "-1"}), 2, "ranks");
  expect_refused(run_with(kModel, {"--ranks", "many"}), 2, "ranks");
  expect_refused(run_with(kModel, {"--ranks", "2", "--shares", "0,0"}), 2, "share");
  expect_refused(run_with(kModel, {"--ranks", "2", "--shares", "1,2,3"}), 2, "share");
  expect_refused(run_with(kModel, {"--ranks", "2", "--shares", "1,x"}), 2, "share");
  expect_refused(run_with(kModel, {"--ranks", "2", "--shares", "1,-1"}), 2, "share");
}
TEST(BadFlag, RankLeftWithNothingIsNamed) {
  expect_refused(run_with(kModel, {"--ranks", "2", "--shares", "1000000,1"}), 2, "rank 1");
}
TEST(BadFlag, UnknownFlagAndCommandAreUsage) {
  EXPECT_EQ(sinew(run_with(kModel, {"--no-such-flag"})).exit_status, 2);
  EXPECT_EQ(sinew({"no-such-command"}).exit_status, 2);
  EXPECT_EQ(sinew({}).exit_status, 2);
}
TEST(BadFlag, UnknownLinkIsUsage) {
  expect_refused(run_with(kModel, {"--ranks", "2", "--link", "pigeon"}), 2, "link");
  expect_refused(run_with(kModel, {"--ranks", "2", "--link", "verbs", "--verbs-qp", "ud"}), 2,
                 "--verbs-qp");
  expect_refused(run_with(kModel, {"--ranks", "2", "--link", "verbs", "--verbs-slot", "5000"}), 2,
                 "--verbs-slot");
  // No machine has such a device, with or without RDMA; every rank says the same.
  expect_refused(
      run_with(kModel, {"--ranks", "2", "--link", "verbs", "--verbs-device", "no_such_device"}), 69,
      "verbs: ");
}
TEST(BadFlag, WireTypeIsOneOfThreeAndVerifyTakesOne) {
  expect_refused(run_with(kModel, {"--ranks", "2", "--wire", "fp8"}), 2, "f32, bf16 and f16");
  expect_refused({"verify", kModel, "--short", "--ranks", "2", "--wire", "bf16"}, 2, "leave out");
}
TEST(BadFlag, ThreadsAndTemperatureHaveRanges) {
  expect_refused(run_with(kModel, {"--threads", "513"}), 2, "threads");
  expect_refused(run_with(kModel, {"--temp", "-1"}), 2, "temp");
}
TEST(BadFlag, ContextBeyondMemoryIsRefusedWithTheArithmetic) {
  const ProcessOutput output = sinew(run_with(kModel, {"--ctx", "4194305"}));
  EXPECT_EQ(output.exit_status, 2) << output.err;
  EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
}

TEST(BadPlace, PortInUseIsSaid) {
  const int taken = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(taken, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(taken, 1), 0);
  ASSERT_EQ(getsockname(taken, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  expect_refused({"serve", kModel, "--ranks", "1", "--port", port}, 74, port.c_str());
  close(taken);
}

}  // namespace
}  // namespace sinew::test
