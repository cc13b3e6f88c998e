#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace sinew {

struct DoctorFlags {
  std::string model;
  std::vector<std::string> peers;
  bool json = false;
  bool probe_rdma = false;  // the child's part: prints rdma_report()
  std::string ggml;         // version
};
// `sinew doctor`: prints every check; false if one failed.
Result<bool> doctor_command(const DoctorFlags& flags);

}  // namespace sinew
