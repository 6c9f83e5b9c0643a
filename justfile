# The command surface. Each recipe calls the script that CI and people without just call too.

# What a commit should pass: lint and the quick tests.
check:
    scripts/test fast

# Every room of tests, or those named: just test spark cli -- -k bucket
test *arguments:
    scripts/test {{arguments}}

# With real Hudi on Spark 3.5, and with hudi-rs.
interop *arguments:
    scripts/test interop {{arguments}}

demo *arguments:
    scripts/demo {{arguments}}

bench *arguments:
    scripts/bench {{arguments}}
