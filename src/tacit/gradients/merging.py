"""Several uses of one parameter in a lot, as one piece."""

from __future__ import annotations

import torch

from tacit.gradients.pieces import DensePiece, GramPiece, OuterPiece, Piece, matrix_piece
from tacit.gradients.tables import EmbeddingPiece, TiedPiece


def _in_turns(piece: OuterPiece | GramPiece) -> GramPiece:
    """One outer product an example as a sum of one."""
    return piece if isinstance(piece, GramPiece) else GramPiece(piece.grads[:, None], piece.inputs[:, None])


def merged(pieces: list[Piece], shape: tuple[int, ...]) -> Piece:
    """Several uses of one parameter as one piece: added up before any norm is taken."""
    if len(pieces) == 1:
        return pieces[0]
    tables = [piece for piece in pieces if isinstance(piece, EmbeddingPiece)]
    if len(tables) == len(pieces) and len({table.padding for table in tables}) == 1:
        grads, tokens = torch.cat([t.grads for t in tables], 1), torch.cat([t.tokens for t in tables], 1)
        return EmbeddingPiece(grads, tokens, tables[0].rows, tables[0].padding)
    products = [_in_turns(piece) for piece in pieces if isinstance(piece, (OuterPiece, GramPiece))]
    if products and len(tables) + len(products) == len(pieces):
        product = matrix_piece(torch.cat([p.grads for p in products], 1), torch.cat([p.inputs for p in products], 1))
        if not tables:
            return product
        table = merged([*tables], shape)
        if isinstance(table, EmbeddingPiece) and isinstance(product, (OuterPiece, GramPiece)):
            return TiedPiece(table, _in_turns(product))
    first = pieces[0].dense()
    total = first.reshape(first.shape[0], *shape).clone()
    for piece in pieces[1:]:
        total += piece.dense().view_as(total)
    return DensePiece(total)
