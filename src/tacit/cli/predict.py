"""`tacit predict`: what a trained model says about new rows."""

from pathlib import Path
from typing import Annotated

import typer


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or its model.safetensors.", show_default=False)],
    data: Annotated[str, typer.Argument(help="New rows, without the target, such as new.csv.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the predictions to this CSV file; its folder is made if missing."),
    ] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add the probability of each class.")] = False,
) -> None:
    """Predict new rows, given as you have them, with a trained model.

    Bounds, categories and class names are stored with the model. Predicting costs no privacy.

    \b
    tacit predict runs/patients-1 new.csv --out predictions.csv
    tacit predict runs/patients-1 new.csv --probabilities
    """
    from tacit.cli.output import note, say
    from tacit.workflows.predict import predict_file

    found = predict_file(run, data, out=out, probabilities=probabilities)
    if out is not None:
        say(found.paragraphs())
        return
    typer.echo(found.to_csv(), nl=False)
    for text in found.notes:
        note(text)
