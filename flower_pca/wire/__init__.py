"""The only package that handles Flower's records, in the layout of the message API and in the layout of NumPyClient.

A node that uses the message API gets `arrays` and `config`, and answers with `arrays`, `metrics` and `config`.
A ClientApp with a client_fn gets and returns the records that Flower makes from a NumPyClient's arguments and
return values. See `layouts`.
"""

from flower_pca.wire import records as records
from flower_pca.wire.answers import DECLINES as DECLINES
from flower_pca.wire.answers import NO_KEY as NO_KEY
from flower_pca.wire.answers import SITE as SITE
from flower_pca.wire.answers import ClientAnswer as ClientAnswer
from flower_pca.wire.answers import as_config as as_config
from flower_pca.wire.answers import is_reply as is_reply
from flower_pca.wire.answers import read_answer as read_answer
from flower_pca.wire.answers import read_reply as read_reply
from flower_pca.wire.answers import refusal as refusal
from flower_pca.wire.answers import write_evaluate as write_evaluate
from flower_pca.wire.answers import write_fit as write_fit
from flower_pca.wire.answers import write_memory as write_memory
from flower_pca.wire.answers import write_reply as write_reply
from flower_pca.wire.layouts import BOTH as BOTH
from flower_pca.wire.layouts import CLIENT_FN as CLIENT_FN
from flower_pca.wire.layouts import EVALUATE as EVALUATE
from flower_pca.wire.layouts import MESSAGE_API as MESSAGE_API
from flower_pca.wire.layouts import Config as Config
from flower_pca.wire.layouts import Scalar as Scalar
from flower_pca.wire.layouts import layout_of_reply as layout_of_reply
from flower_pca.wire.layouts import layout_of_request as layout_of_request
from flower_pca.wire.layouts import message_kind as message_kind
from flower_pca.wire.packets import read_packed as read_packed
from flower_pca.wire.packets import write_packed as write_packed
from flower_pca.wire.properties import DIRECTORY as DIRECTORY
from flower_pca.wire.properties import read_actions as read_actions
from flower_pca.wire.properties import read_properties as read_properties
from flower_pca.wire.properties import write_actions as write_actions
from flower_pca.wire.properties import write_directory_query as write_directory_query
from flower_pca.wire.properties import write_properties as write_properties
from flower_pca.wire.properties import write_query as write_query
from flower_pca.wire.records import SPOKEN as SPOKEN
from flower_pca.wire.records import arrays_by_name as arrays_by_name
from flower_pca.wire.records import read_arrays as read_arrays
from flower_pca.wire.records import value_of as value_of
from flower_pca.wire.requests import ServerRequest as ServerRequest
from flower_pca.wire.requests import is_request as is_request
from flower_pca.wire.requests import open_request as open_request
from flower_pca.wire.requests import read_request as read_request
from flower_pca.wire.requests import write_request as write_request
