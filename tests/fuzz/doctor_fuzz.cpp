// What tools of the system may print; the first byte chooses the parser.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "doctor/parse.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sinew;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 8) {
    case 0:
      parse_thunderbolt(text);
      break;
    case 1:
      parse_ip_addr(text);
      break;
    case 2:
      parse_ifconfig(text);
      break;
    case 3:
      parse_processes(text);
      break;
    case 4:
      parse_rdma_report(text);
      break;
    case 5:
      parse_meminfo(text, "MemTotal");
      parse_memory_limit(text);
      break;
    case 6:
      parse_sysctl(text);
      parse_pmset(text);
      break;
    case 7:
      parse_sw_vers(text);
      parse_rdma_ctl(text);
      parse_nft(text);
      break;
  }
  return 0;
}
