// Headers that most tests include, as prelude.h has those of most sources.
#include <fstream>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tools/bazel/job_prelude.h"
