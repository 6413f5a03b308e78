"""/api/v1/agents: which agents have live workers, and how busy they are."""

from typing import Any

from fastapi import APIRouter

from control_plane.api.request import Behind

router = APIRouter(prefix="/api/v1/agents", tags=["agents"])


@router.get("")
async def list_agents(behind: Behind) -> dict[str, Any]:
    agents = behind.agents.now()
    return {
        "items": [{"name": agent.name, "workers": agent.workers, "running": agent.running} for agent in agents],
        "total_count": len(agents),
    }
