-- SPDX-License-Identifier: BSD-3-Clause
-- Plays what TACC's submit filter refuses: GPUs and memory come with the queue and cannot be asked for,
-- and the number of nodes and the time must be said.

local function refuse(sentence)
    slurm.log_user("--> " .. sentence)
    return slurm.ERROR
end

function slurm_job_submit(job, partitions, uid)
    if job.tres_per_node or job.tres_per_task or job.tres_per_job or job.tres_per_socket then
        return refuse("GPUs cannot be requested with --gres or --gpus here: the queue decides")
    end
    if job.pn_min_memory ~= slurm.NO_VAL64 then
        return refuse("--mem and --mem-per-cpu are not available here: a node's memory is the job's")
    end
    if job.min_nodes == slurm.NO_VAL then
        return refuse("the number of nodes (-N) is missing")
    end
    if job.time_limit == slurm.NO_VAL then
        return refuse("the maximum run time (-t) is missing")
    end
    return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
    return slurm.SUCCESS
end

return slurm.SUCCESS
