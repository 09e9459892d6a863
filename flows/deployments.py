"""What `prefect.yaml` deploys: the flows as Prefect's own objects."""

from __future__ import annotations

from flows.bert import bert as whole
from flows.rebuild import rebuild as rebuild

bert = whole.flow
