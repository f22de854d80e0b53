"""LiteRT's `Interpreter`, run by this package: changing the import is enough.

    from tflm.compat.litert.interpreter import Interpreter

Method names, arguments, results and the kinds of errors are those of `ai_edge_litert.interpreter`; answers are TFLM's.
The arena is found by itself, and every operator of the package is there.
"""

from __future__ import annotations

import enum
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tflm import delegates
from tflm.compat.litert.wrapper import InterpreterWrapper
from tflm.errors import ModelError, TflmError
from tflm.kernels import Registration
from tflm.runtime.micro_op_resolver import AllOpsResolver, MicroMutableOpResolver
from tflm.schema.model import Model

Details = dict[str, Any]

Registerer = str | Registration | Callable[[MicroMutableOpResolver], None]
"""What adds an operator: a registration, a function that is given the resolver; names of C++ functions are refused."""


@enum.unique
class OpResolverType(enum.Enum):
    """Which kernels run a model. They all give TFLM's answers here.

    Attributes:
        AUTO, BUILTIN: with the delegates that are there by default.
        BUILTIN_REF, BUILTIN_WITHOUT_DEFAULT_DELEGATES: without them.
    """

    AUTO = 0
    BUILTIN = 1
    BUILTIN_REF = 2
    BUILTIN_WITHOUT_DEFAULT_DELEGATES = 3


class Delegate:
    """A delegate of this package, loaded by its name; see `load_delegate`.

    Args:
        library: `compiled`, `flex`, or one of the caller's own as `package.module:Class`.
        options: what it is made with, by name.

    Raises:
        ValueError: there is none of that name, or it can't be made with these options.
    """

    def __init__(self, library: str, options: Mapping[str, Any] | None = None):
        self._library = library
        made = delegates.by_name(library)
        try:
            self._delegate = type(made)(**options) if options else made
        except (TypeError, TflmError) as error:
            raise ValueError(str(error)) from error


def load_delegate(library: str, options: Mapping[str, Any] | None = None) -> Delegate:
    """A delegate for `Interpreter(experimental_delegates=[...])`; see `Delegate` for the arguments.

    Raises:
        ValueError: it can't be had, such as the native libraries that LiteRT loads.
    """
    try:
        return Delegate(library, options)
    except ValueError as error:
        raise ValueError(f"Failed to load delegate from {library}\n{error}") from error


class SignatureRunner:
    """Runs one signature of a model: takes its inputs and gives its outputs by their names.

    Made by `Interpreter.get_signature_runner`.

    Raises:
        ValueError: there is no such signature.
    """

    def __init__(self, interpreter: Interpreter | None = None, signature_key: str | None = None):
        if not interpreter:
            raise ValueError("None interpreter provided.")
        if not signature_key:
            raise ValueError("None signature_key provided.")
        self._interpreter = interpreter
        self._signature_key = signature_key
        signatures = interpreter._get_full_signature_list()
        if signature_key not in signatures:
            raise ValueError(f'Invalid signature_key provided: "{signature_key}".')
        self._inputs = signatures[signature_key]["inputs"]
        self._outputs = signatures[signature_key]["outputs"]
        self._subgraph_index = interpreter._interpreter.subgraph_of_signature(signature_key)

    def __call__(self, **kwargs: Any) -> dict[str, npt.NDArray[Any]]:
        """Run it on inputs by name, each resized to the shape of its value; gives copies of the outputs by name.

        Raises:
            ValueError: inputs are missing, not known, or of the wrong type.
            RuntimeError: the model can't be run with inputs of these shapes.
        """
        if len(kwargs) != len(self._inputs):
            raise ValueError(
                "Invalid number of inputs provided for running a SignatureDef, expected "
                f"{len(self._inputs)} vs provided {len(kwargs)}"
            )
        wrapper = self._interpreter._interpreter
        for name, value in kwargs.items():
            if name not in self._inputs:
                raise ValueError(f"Invalid Input name ({name}) for SignatureDef")
            wrapper.resize_input(self._inputs[name], np.array(value.shape, np.int32), False, self._subgraph_index)
        wrapper.allocate(self._subgraph_index)
        for name, value in kwargs.items():
            wrapper.set_tensor(self._inputs[name], value, self._subgraph_index)
        wrapper.invoke(self._subgraph_index)
        return {name: _copied(wrapper.data(tensor, self._subgraph_index)) for name, tensor in self._outputs.items()}

    def get_input_details(self) -> dict[str, Details]:
        """What `Interpreter.get_input_details` tells, by the names of the signature."""
        return self._details(self._inputs)

    def get_output_details(self) -> dict[str, Details]:
        """What `Interpreter.get_output_details` tells, by the names of the signature."""
        return self._details(self._outputs)

    def _details(self, tensors: Mapping[str, int]) -> dict[str, Details]:
        return {
            name: self._interpreter._get_tensor_details(tensor, self._subgraph_index)
            for name, tensor in tensors.items()
        }


class Interpreter:
    """A model, to be allocated and run.

    Args:
        model_path: of a `.tflite` file.
        model_content: its bytes, in place of a path.
        experimental_delegates: what `load_delegate` gave, or delegates of this package as they are.
        num_threads: accepted; one is used.
        experimental_op_resolver_type: whether delegates that are there by default are used, see `OpResolverType`.
        experimental_preserve_all_tensors: keep every tensor, so that `get_tensor` can look at any.
        experimental_disable_delegate_clustering, experimental_default_delegate_latest_features,
        experimental_compress_quantization_zero_points, experimental_disable_delegate_node_fusion,
        experimental_force_delegate_node_profiling: accepted; they change nothing here.

    Raises:
        ValueError: an argument can't be used, or there is no good model.
    """

    _custom_op_registerers: Sequence[Registerer] = ()

    def __init__(
        self,
        model_path: str | os.PathLike[str] | None = None,
        model_content: bytes | None = None,
        experimental_delegates: Sequence[Delegate | delegates.Delegate] | None = None,
        num_threads: int | None = None,
        experimental_op_resolver_type: OpResolverType = OpResolverType.AUTO,
        experimental_preserve_all_tensors: bool = False,
        experimental_disable_delegate_clustering: bool = False,
        experimental_default_delegate_latest_features: bool = False,
        experimental_compress_quantization_zero_points: bool = False,
        experimental_disable_delegate_node_fusion: bool = False,
        experimental_force_delegate_node_profiling: bool = False,
    ):
        if not isinstance(experimental_op_resolver_type, OpResolverType):
            raise ValueError(f"Unrecognized passed in op resolver type: {experimental_op_resolver_type}")
        if num_threads is not None:
            if not isinstance(num_threads, int):
                raise ValueError("type of num_threads should be int")
            if num_threads < 1:
                raise ValueError("num_threads should >= 1")
        has_defaults = experimental_op_resolver_type in (OpResolverType.AUTO, OpResolverType.BUILTIN)
        if experimental_preserve_all_tensors and has_defaults:
            warnings.warn("every tensor keeps memory of its own, which is for debugging: it takes more", stacklevel=2)
        self.experimental_compress_quantization_zero_points = experimental_compress_quantization_zero_points
        self._delegates = list(experimental_delegates or ())
        given = [each._delegate if isinstance(each, Delegate) else each for each in self._delegates]
        self._interpreter = InterpreterWrapper(
            _model(model_path, model_content),
            _resolver(self._custom_op_registerers),
            given,
            has_defaults,
            experimental_preserve_all_tensors,
        )

    def allocate_tensors(self) -> None:
        """Place the model in an arena of the size that it needs.

        Raises:
            RuntimeError: it can't be; or an array of `tensor` is still there.
        """
        self._ensure_safe()
        self._interpreter.allocate()

    def invoke(self) -> None:
        """Run the model on what its inputs hold.

        Raises:
            RuntimeError: it is not allocated, or an operator can't go on; or an array of `tensor` is still there.
        """
        self._ensure_safe()
        self._interpreter.invoke()

    def reset_all_variables(self) -> None:
        """Put variables back to what they were before the first invoke."""
        self._interpreter.reset_variables()

    def resize_tensor_input(self, input_index: int, tensor_size: Any, strict: bool = False) -> None:
        """Give an input another shape; `allocate_tensors` then lays the model out anew.

        Args:
            input_index: the `index` of the input's details.
            tensor_size: the shape.
            strict: only dimensions that are -1 in the `shape_signature` may change.

        Raises:
            ValueError: the shape is none.
            RuntimeError: the tensor can't have it; or an array of `tensor` is still there.
        """
        self._ensure_safe()
        self._interpreter.resize_input(input_index, np.array(tensor_size, np.int32), strict, 0)

    def get_input_details(self) -> list[Details]:
        """Of each input: name, index, shape, shape_signature, dtype, quantization, sparsity."""
        return [self._get_tensor_details(index, 0) for index in self._interpreter.input_indices()]

    def get_output_details(self) -> list[Details]:
        """Of each output, as of an input."""
        return [self._get_tensor_details(index, 0) for index in self._interpreter.output_indices()]

    def get_tensor_details(self, subgraph_index: int = 0) -> list[Details]:
        """Of each tensor of a subgraph, as of an input.

        Raises:
            ValueError: there is no such subgraph.
        """
        count = self._interpreter.num_subgraphs()
        if not 0 <= subgraph_index < count:
            raise ValueError(
                f"subgraph_index is out of range: {subgraph_index} for the model, which has {count} subgraphs."
            )
        indices = range(self._interpreter.num_tensors(subgraph_index))
        return [self._get_tensor_details(index, subgraph_index) for index in indices]

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> npt.NDArray[Any]:
        """A copy of a tensor.

        Tensors other than inputs, outputs and constants are overwritten while the model runs, unless it is asked to
        preserve them.

        Raises:
            ValueError: there is no such tensor, or it has no data yet.
        """
        return _copied(self._interpreter.data(tensor_index, subgraph_index))

    def set_tensor(self, tensor_index: int, value: Any) -> None:
        """Copy values to an input.

        Raises:
            ValueError: their type or shape is not that of the tensor, or the model is not allocated.
        """
        self._interpreter.set_tensor(tensor_index, value)

    def tensor(self, tensor_index: int) -> Callable[[], npt.NDArray[Any]]:
        """A function that gives a tensor's elements where they are, an array to read and to write.

        While such an array is there, nothing can be allocated, resized or run.
        """
        return lambda: self._interpreter.view(tensor_index)

    def num_subgraphs(self) -> int:
        """Number of subgraphs."""
        return self._interpreter.num_subgraphs()

    def get_signature_list(self) -> dict[str, dict[str, list[str]]]:
        """The names of inputs and outputs of each signature."""
        return {
            key: {side: list(tensors) for side, tensors in sides.items()}
            for key, sides in self._interpreter.signatures().items()
        }

    def get_signature_runner(self, signature_key: str | None = None) -> SignatureRunner:
        """What runs a signature; the only one where no key is given.

        Raises:
            ValueError: there is no such signature, or no key and not just one.
        """
        if signature_key is None:
            keys = list(self._interpreter.signatures())
            if len(keys) != 1:
                raise ValueError(
                    f"SignatureDef signature_key is None and model has {len(keys)} Signatures. None is only allowed "
                    "when the model has 1 SignatureDef"
                )
            signature_key = keys[0]
        return SignatureRunner(self, signature_key)

    def _get_full_signature_list(self) -> dict[str, dict[str, dict[str, int]]]:
        return self._interpreter.signatures()

    def _get_tensor_details(self, tensor_index: int, subgraph_index: int) -> Details:
        return self._interpreter.tensor_details(int(tensor_index), int(subgraph_index))

    def _get_op_details(self, op_index: int) -> Details:
        """Of an operator: index, name, tensors and their types."""
        name, inputs, outputs = self._interpreter.node(op_index)

        def types(tensors: Iterable[int]) -> list[Any]:
            return [self._get_tensor_details(tensor, 0)["dtype"] for tensor in tensors if tensor != -1]

        return {
            "index": int(op_index),
            "op_name": name,
            "inputs": inputs,
            "outputs": outputs,
            "operand_types": types(inputs),
            "result_types": types(outputs),
        }

    def _get_ops_details(self) -> list[Details]:
        """Of each operator of the first subgraph."""
        return [self._get_op_details(index) for index in range(self._interpreter.num_nodes())]

    def _safe_to_run(self) -> bool:
        """Whether no array of `tensor` is there, each of which holds on to the inner object."""
        return sys.getrefcount(self._interpreter) == 2

    def _ensure_safe(self) -> None:
        if not self._safe_to_run():
            raise RuntimeError(
                "There is at least 1 reference to internal data in the interpreter in the form of a numpy array or "
                "slice. Be sure to only hold the function returned from tensor() if you are using raw data access."
            )


class InterpreterWithCustomOps(Interpreter):
    """An interpreter that is given operators of the caller's own.

    Args:
        custom_op_registerers: `tflm.Registration` objects, or functions that are given the resolver to add them to.
        kwargs: as for `Interpreter`.

    Raises:
        ValueError: as for `Interpreter`; or a registerer is the name of a C++ function.
    """

    def __init__(self, custom_op_registerers: Sequence[Registerer] | None = None, **kwargs: Any):
        self._custom_op_registerers = custom_op_registerers or []
        super().__init__(**kwargs)


def _model(path: str | os.PathLike[str] | None, content: bytes | None) -> Model:
    if path and content:
        raise ValueError("Can't both provide `model_path` and `model_content`")
    if not path and not content:
        raise ValueError("`model_path` or `model_content` must be specified.")
    if content and not isinstance(content, bytes):
        raise TypeError(f"model_content is bytes, not {type(content).__name__}")
    try:
        return Model(content) if content else Model.from_file(cast(str, path))
    except OSError as error:
        raise ValueError(f"Could not open '{path}'. {error.strerror}") from error
    except ModelError as error:
        raise ValueError(f"The model is not a valid Flatbuffer buffer: {error}") from error


def _resolver(registerers: Iterable[Registerer]) -> AllOpsResolver:
    resolver = AllOpsResolver()
    for registerer in registerers:
        if isinstance(registerer, str):
            reason = "there are no C++ functions here, give the tflm.Registration of the operator"
            raise ValueError(f"Looking up symbol '{registerer}' failed with error '{reason}'.")
        if isinstance(registerer, Registration):
            resolver.add_custom(registerer)
        else:
            registerer(resolver)
    return resolver


def _copied(data: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.array(data, data.dtype)
