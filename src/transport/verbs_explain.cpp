#include "transport/verbs_explain.h"

#include <cerrno>
#include <cstring>

namespace sinew {
namespace {

// Apple's EOPNOTSUPP has the number that Linux gives to ENETRESET; both are refusals here.
constexpr int kAppleNotSupported = 102;
constexpr int kAppleTimedOut = 60;

std::string_view remedy_of(VerbsCall call, int number) {
  if (number == EOPNOTSUPP || number == kAppleNotSupported) {
    return "the device does not offer this kind of queue pair: Thunderbolt offers UC alone "
           "(--verbs-qp uc)";
  }
  switch (call) {
    case VerbsCall::kListDevices:
      return "load the kernel's modules for RDMA (Linux: ib_uverbs and the driver of the card)";
    case VerbsCall::kOpenDevice:
      if (number == EACCES || number == EPERM)
        return "the user needs write access to /dev/infiniband/uverbs*";
      return "see that the device is still there: names change when a cable is plugged again";
    case VerbsCall::kQueryPort:
    case VerbsCall::kQueryGids:
      return "see that the device is still there: names change when a cable is plugged again";
    case VerbsCall::kAllocateDomain:
      return "the port is down or an earlier process left protection domains behind: check the "
             "cable, end leftover processes, else restart the machine";
    case VerbsCall::kRegisterRegion:
      if (number == ENOMEM || number == EAGAIN || number == EPERM)
        return "raise the limit of locked memory (ulimit -l unlimited, LimitMEMLOCK=infinity)";
      return "the stack refused the memory region: fewer slots or smaller ones (--verbs-slot) need "
             "less";
    case VerbsCall::kCreateQp:
    case VerbsCall::kCreateCq:
    case VerbsCall::kCreateChannel:
      if (number == EBUSY)
        return "all queue pairs of the device are taken (Thunderbolt has 10), or a crashed process "
               "left some behind: end it, else restart the machine";
      if (number == ENOMEM)
        return "the device has no memory for queues of that depth: fewer or smaller slots need "
               "less";
      return "see that no other program holds the device's queues";
    case VerbsCall::kQueryDepth:
    case VerbsCall::kToInit:
      return "the driver refused a fresh queue pair: restart the machine if it goes on";
    case VerbsCall::kToReceive:
    case VerbsCall::kToSend:
      if (number == EINVAL)
        return "the address (GID) is absent or has another index, or a Thunderbolt bridge owns the "
               "interface: give the interface an IPv4 address and make the bridge inactive";
      if (number == ETIMEDOUT || number == kAppleTimedOut || number == EHOSTUNREACH)
        return "the peer's address is not reachable on this cable: check that both ends are of one "
               "subnet, and ping the peer over this interface";
      if (number == EFAULT)
        return "the driver's memory for connections is used up until the next restart of the "
               "machine: use fewer queue pairs and smaller regions, and restart it";
      if (number == EBUSY) return "an earlier process left the port in use: restart the machine";
      return "check the cable and both interfaces' addresses";
    case VerbsCall::kPostReceive:
    case VerbsCall::kPostSend:
      if (number == ENOMEM)
        return "the queue is full although it was granted: smaller slots (--verbs-slot) need fewer "
               "frames";
      return "the queue pair is broken: check the cable";
  }
  return "";
}

// Whether another attempt can end otherwise: false where only a person can help.
bool worth_another_attempt(VerbsCall call, int error_number) {
  switch (call) {
    case VerbsCall::kListDevices:
    case VerbsCall::kOpenDevice:
    case VerbsCall::kAllocateDomain:
    case VerbsCall::kRegisterRegion:
      return false;
    case VerbsCall::kCreateChannel:
    case VerbsCall::kCreateCq:
    case VerbsCall::kCreateQp:
      return error_number != EBUSY && error_number != EOPNOTSUPP &&
             error_number != kAppleNotSupported;
    case VerbsCall::kToReceive:
    case VerbsCall::kToSend:
      // The pool that EFAULT tells of shrinks further with every attempt.
      return error_number != EFAULT;
    case VerbsCall::kQueryPort:
    case VerbsCall::kQueryGids:
    case VerbsCall::kQueryDepth:
    case VerbsCall::kToInit:
    case VerbsCall::kPostReceive:
    case VerbsCall::kPostSend:
      return true;
  }
  return false;
}

}  // namespace

std::string_view verbs_call_name(VerbsCall call) {
  switch (call) {
    case VerbsCall::kListDevices:
      return "listing devices";
    case VerbsCall::kOpenDevice:
      return "opening the device";
    case VerbsCall::kQueryPort:
      return "reading the port's state";
    case VerbsCall::kQueryGids:
      return "reading the port's addresses";
    case VerbsCall::kAllocateDomain:
      return "allocating a protection domain";
    case VerbsCall::kRegisterRegion:
      return "registering memory";
    case VerbsCall::kCreateChannel:
      return "creating a completion channel";
    case VerbsCall::kCreateCq:
      return "creating a completion queue";
    case VerbsCall::kCreateQp:
      return "creating a queue pair";
    case VerbsCall::kQueryDepth:
      return "reading the granted depth";
    case VerbsCall::kToInit:
      return "moving the queue pair to INIT";
    case VerbsCall::kToReceive:
      return "moving the queue pair to RTR";
    case VerbsCall::kToSend:
      return "moving the queue pair to RTS";
    case VerbsCall::kPostReceive:
      return "posting a receive";
    case VerbsCall::kPostSend:
      return "posting a send";
  }
  return "a verbs call";
}

Error explain_verbs(VerbsCall call, int error_number, std::string_view device) {
  const std::string place = device.empty() ? "" : fmt::format(" on {}", device);
  const ErrorCode code =
      worth_another_attempt(call, error_number) ? ErrorCode::kIo : ErrorCode::kUnsupported;
  return Error{
      code,
      fmt::format("verbs: {}{} failed: errno {} ({}): {}", verbs_call_name(call), place,
                  error_number, std::strerror(error_number), remedy_of(call, error_number)),
      {}};
}

std::string explain_completion(std::uint32_t status) {
  switch (status) {
    case 1:
      return "status 1 (length): the peer's message has another number of frames than the receive";
    case 2:
      return "status 2 (queue pair): the local queue pair broke";
    case 4:
      return "status 4 (protection): the memory region is not usable";
    case 5:
      return "status 5 (flushed): the queue pair was stopped";
    case 12:
      return "status 12 (retries exceeded): the peer does not answer";
    case 13:
      return "status 13 (receiver not ready): the peer had no receive posted for too long";
    default:
      return fmt::format("status {}", status);
  }
}

}  // namespace sinew
