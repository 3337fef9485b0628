from ._client import Client, Namespace, Texts
from ._errors import *
