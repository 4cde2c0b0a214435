"""`onnx`: write the ONNX graphs of a model folder, over its own weights file."""

import argparse
from pathlib import Path

EXAMPLE = "python -m export onnx checkpoints/translate"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder."""
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="a model folder")


def run(options: argparse.Namespace) -> None:
    """Write encoder_model.onnx, decoder_model.onnx and attention.onnx."""
    export_onnx(options.bundle)


def export_onnx(folder: Path) -> list[str]:
    """Write every graph of the folder's model; their file names."""
    from tqdm import tqdm

    from tiny_transformer.bundle import WEIGHTS, Bundle
    from tiny_transformer.model import load_model

    from .artefact import close, write_graph
    from .external import point, sign, tidy
    from .graphs import graphs_of, trace
    from .samples import samples_for

    bundle = Bundle.open(folder)
    model = load_model(bundle)
    graphs = graphs_of(bundle.config)
    bar = tqdm(graphs.items(), unit="graph", disable=None)
    for name, graph in bar:
        bar.set_description(name)
        traced = tidy(trace(graph, bundle.config), graph.inputs, graph.outputs)
        pointed = point(traced, bundle.index, WEIGHTS)
        sign(pointed, bundle.config, bundle.index)
        write_graph(folder / name, pointed, samples_for(name, model, bundle.config), close)
    return list(graphs)
