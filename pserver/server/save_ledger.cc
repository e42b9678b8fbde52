#include "pserver/server/save_ledger.h"

#include "absl/strings/str_cat.h"

namespace weir {

std::string SaveLedger::Unsaved() const {
  if (effective_ == saved_) return "";
  const int64_t lost = effective_ - written_;
  return absl::StrCat("; ",
                      lost == 0   ? std::string("the last checkpoint may not have been published")
                      : lost == 1 ? std::string("1 step that has taken effect since the last save is lost")
                                  : absl::StrCat(lost, " steps that have taken effect since the last save are lost"),
                      ": run again with --resume");
}

}  // namespace weir
