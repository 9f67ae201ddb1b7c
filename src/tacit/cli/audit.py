"""`tacit audit`: attack a run, or every method in every form."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tacit.cli import options

if TYPE_CHECKING:
    from tacit.audit import AuditReport, NeighbourTest, Roc
    from tacit.workflows.auditing import Subject

_COLUMNS = ("method", "claim", "proven", "audited lower bound", "verdict")


def _number(meaning: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(parser=options.number, metavar="NUMBER", help=meaning)
    return option


def audit(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="The folder of a run: --out of tacit train.", show_default=False),
    ] = None,
    claims: Annotated[bool, typer.Option("--claims", help="Attack every method, in every form, instead.")] = False,
    canaries: Annotated[
        float | None, _number("Gradient canaries in the repeated training; 0 leaves it out (1000).")
    ] = None,
    steps: Annotated[float | None, _number("Repeat so many steps of the training only.")] = None,
    shadows: Annotated[float | None, _number("Shadow models for the likelihood-ratio attack (0: none).")] = None,
    confidence: Annotated[float | None, _number("How sure the lower bound on epsilon is to be (0.99).")] = None,
    data_path: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Your copy of the data, if it has moved.")
    ] = None,
    seed: Annotated[float | None, _number("Fix canaries and noise, to repeat an audit.")] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the picture goes (RUN/audit/audit.png).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Of --claims: where results are kept (audits/claims).")
    ] = None,
    workers: Annotated[
        float | None, _number("Processes that attack at once, for --claims and --shadows (one for each core).")
    ] = None,
    json: options.Json = False,
) -> None:
    """Attack a run: what its releases and its model give away, beside what is proven.

    The training is repeated with canaries in the data, so it takes as long; after Ctrl-C the same command goes on
    where it was. The verdict is written into the run's guarantee. Ends with 1 if an attack contradicts
    what is proven. A model of your own is first put to the neighbour test, which takes seconds: removing one example
    may move what is released by one clip norm at most. If it moves more, the proof does not apply, and nothing else is
    tried. With --claims every method is attacked on pairs of small data sets made for it, which takes some
    minutes, and the command ends with 1 if a refuted claim holds or a proven one does not.

    \b
    tacit audit runs/first
    tacit audit runs/first --canaries 0 --shadows 16
    tacit audit --claims
    """
    from tacit.errors import InvalidArgument

    if claims == (run is not None):
        raise InvalidArgument("What is to be audited? Give the folder of a run, or --claims for published claims.")
    if claims:
        given = {
            "--canaries": canaries, "--steps": steps, "--shadows": shadows, "--confidence": confidence,
            "--data-path": data_path, "--seed": seed,
        }  # fmt: skip
        _refuse_without_run([name for name, value in given.items() if value is not None])
        from tacit.cli.claims import audit_claims

        audit_claims(out, workers, plot, json=json)
        return
    assert run is not None
    if out is not None:
        raise InvalidArgument("--out says where --claims keeps its results; those of a run go into RUN/audit.")
    try:
        _audit_run(run, (canaries, steps, shadows, confidence, seed, workers), data_path, plot, json)
    except KeyboardInterrupt:
        from tacit.cli.output import note

        note(f"Stopped. What was done is kept in {run / 'audit'}, and the same command goes on with it.")
        raise typer.Exit(130) from None


def _refuse_without_run(given: list[str]) -> None:
    from tacit.errors import InvalidArgument

    if given:
        raise InvalidArgument(f"{', '.join(given)} says how to audit a run, and --claims audits none. Leave it out.")


def _audit_run(
    folder: Path, numbers: tuple[float | None, ...], data_path: Path | None, plot: Path | None, json: bool
) -> None:
    from tacit import _validate
    from tacit.audit import Verdict
    from tacit.audit.claims import report_json
    from tacit.cli.output import refuse_unless_drawable, say_json, working
    from tacit.workflows.auditing import roc_json
    from tacit.workflows.subjects import subject_in

    canaries, steps, shadows, confidence, seed, workers = numbers
    refuse_unless_drawable(plot)
    wanted = 1000 if canaries is None else _validate.count("canaries", canaries, at_least=0)
    some_steps = None if steps is None else _validate.count("steps", steps)
    fixed = None if seed is None else _validate.count("seed", seed, at_least=0)
    sure = 0.99 if confidence is None else _validate.open_unit("confidence", confidence)
    subject = subject_in(folder, data_path)
    with working("Removing examples, one at a time"):
        test = subject.neighbours()
    if test is not None and not test.passed:
        _end_without_proof(subject, test, json)
    with working("Asking the model about its examples"):
        rocs = subject.membership()
    if shadow_count := 0 if shadows is None else _validate.count("shadows", shadows, at_least=0):
        count = None if workers is None else _validate.count("workers", workers)
        rocs["likelihood ratio"] = subject.shadows(shadow_count, fixed, count)
    report = subject.canaries(wanted, some_steps, sure, fixed) if wanted else None
    found = {name: roc_json(one) for name, one in rocs.items()}
    written = None if report is None else report_json(report)
    said = _write(subject, test, written, found)
    subject.record(test, report)
    pictures = _draw(subject, report, rocs, plot)
    if json:
        say_json(said)
    else:
        _print_run(subject, test, report, rocs, pictures)
    if report is not None and report.verdict is Verdict.CONFLICT:
        raise typer.Exit(1)


def _write(
    subject: "Subject", test: "NeighbourTest | None", audit: dict[str, Any] | None, membership: dict[str, Any]
) -> dict[str, Any]:
    """Write what was found to audit.json, and return what this call has found."""
    from tacit.workflows.auditing import write_json

    neighbours = None if test is None else test.to_json()
    said = {
        "folder": str(subject.folder),
        "attacked": subject.attacked,
        "neighbours": neighbours,
        "audit": audit,
        "membership": membership,
    }
    # What an earlier call found by an attack that this one leaves out still stands, and is in the guarantee.
    before = subject.found_before()
    kept = {"audit": audit or before.get("audit"), "membership": {**before.get("membership", {}), **membership}}
    write_json(subject.audit_folder / "audit.json", {**said, **kept})
    return said


def _end_without_proof(subject: "Subject", test: "NeighbourTest", json: bool) -> NoReturn:
    """Attacks are held against a proof, and there is none."""
    from tacit.cli.output import say, say_json

    said = _write(subject, test, None, {})
    subject.record(test, None)
    if json:
        say_json(said)
    else:
        files = [str(subject.audit_folder / "audit.json")]
        say([("Neighbour test: failed", [str(test)]), ("Files, for you and not for release", files)])
    raise typer.Exit(1)


def _draw(subject: "Subject", report: "AuditReport | None", rocs: "dict[str, Roc]", plot: Path | None) -> list[Path]:
    from tacit.cli.output import save
    from tacit.reports.audit_plots import draw_audit, draw_membership

    paths = [subject.audit_folder / "membership.png"]
    save(draw_membership(rocs), paths[0])
    if report is not None:
        paths.insert(0, plot or subject.audit_folder / "audit.png")
        save(draw_audit(report), paths[0])
    return paths


def _print_run(
    subject: "Subject",
    test: "NeighbourTest | None",
    report: "AuditReport | None",
    rocs: "dict[str, Roc]",
    pictures: list[Path],
) -> None:
    from tacit.cli.output import say
    from tacit.cli.tables import audited, console, epsilon, table

    if test is not None:
        say([("Neighbour test", [str(test)])])
    if report is not None:
        shown = table(*_COLUMNS)
        proven, verdict = epsilon(report.proven, "nothing"), str(report.verdict)
        row = (subject.name, epsilon(report.claimed, "none"), proven)
        shown.add_row(*row, audited(report.finding.bound), verdict)
        console().print(shown)
    attacked = {name: f"Attacked: {what}." for name, what in subject.attacked.items()}
    lines = [] if report is None else [attacked["canaries"], *str(report).splitlines()]
    files = [*map(str, pictures), str(subject.audit_folder / "audit.json")]
    members = f"Membership, {len(subject.members[1]):,} trained on against {len(subject.others[1]):,} others"
    say(
        [
            *([("Canaries", lines)] if lines else []),
            (members, [attacked["membership"], *(f"{name}: {one}" for name, one in rocs.items())]),
            ("Files, for you and not for release, as private examples were looked at", files),
        ]
    )
