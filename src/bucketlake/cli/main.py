"""The entry of the command line: the group of commands, error messages and exit codes.

Exit codes: 0 done; 1 rejected or failed, with a sentence that gives the reason; 2 wrong usage;
130 stopped by the user.
"""

from __future__ import annotations

from typing import Any

import click

from bucketlake.cli import (
    check_commands,
    ingest_command,
    read_commands,
    rebucket_commands,
    upkeep_commands,
    write_commands,
)
from bucketlake.cli.output import JsonOutput, Output, in_command_words
from bucketlake.cli.shared_options import CommandWithExample, asks_for_json, without_given_secrets
from bucketlake.errors import BucketLakeError
from bucketlake.model.names import did_you_mean
from bucketlake.model.words_of_others import hint_for
from bucketlake.spark.workers import postpone_pandas

EXIT_FAILED = 1
EXIT_STOPPED = 130  # The code that a shell reports for a process ended by SIGINT.

_WORDS = "bucketlake.words"  # Key of the arguments in click's metadata of a run.
_STOPPED = "stopped; uncommitted changes are not visible to any reader"


class CommandGroup(CommandWithExample, click.Group):
    """The group of commands; shows an error in one line, as text or JSON as requested."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments, because an error in them is shown in the format that they request."""
        ctx.meta[_WORDS] = [*args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; turn an exception into a message and an exit code."""
        postpone_pandas()
        in_json = asks_for_json(ctx.meta[_WORDS])
        output: Output = JsonOutput() if in_json else Output()
        try:
            return super().invoke(ctx)
        except BucketLakeError as error:
            output.error(error)
            ctx.exit(EXIT_FAILED)
        except click.UsageError as error:
            message = without_given_secrets(error.format_message(), ctx.meta[_WORDS])
            shown = click.UsageError(message, error.ctx)
            if not in_json:
                raise shown from None
            output.error(shown)
            ctx.exit(shown.exit_code)
        except KeyboardInterrupt:
            output.error(InterruptedError(_STOPPED))
            ctx.exit(EXIT_STOPPED)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; the error for an unknown one names the command that is meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            hint = hint_for(args[0], "table") or did_you_mean(args[0], self.commands)
            message = error.message.rstrip(".") + in_command_words(hint)
            raise click.UsageError(message, ctx) from None

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names in the order in which a newcomer meets the commands."""
        return list(self.commands)


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="bucketlake", prog_name="bucketlake")
def main() -> None:
    """Work with Apache Hudi bucket-index tables from a shell, without Spark or Java.

    PATH is a table's folder or address: orders, /data/orders, s3://bucket/orders.

    Examples
    --------
    bucketlake create orders --like monday.parquet --key order_id
    bucketlake upsert orders monday.parquet
    bucketlake read orders --limit 5
    """


_MODULES = (
    *(write_commands, ingest_command, read_commands, upkeep_commands, rebucket_commands),
    check_commands,
)
_ORDER = (
    "create upsert ingest update delete sql read changes show timeline buckets report advise "
    "locate position compact upkeep sync convert clean archive rescale resize metadata upgrade "
    "downgrade rollback savepoint restore doctor repair"
).split()
"""The commands as the help lists them; a command without a place here is an error at import."""

_COMMANDS = (held for module in _MODULES for held in vars(module).values())
for _command in sorted(
    (held for held in _COMMANDS if isinstance(held, CommandWithExample)),
    key=lambda command: _ORDER.index(str(command.name)),
):
    main.add_command(_command)
